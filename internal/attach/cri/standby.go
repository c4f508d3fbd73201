package cri

import (
	"context"
	"errors"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/sleep"
)

// openWhenAdmitted opens the sockets. If another agent on the node still serves the same socket, it first waits for
// that agent to end. Callers wait in the socket until the agent knows the running containers, at most for
// RuntimeTimeout.
func openWhenAdmitted[T any](ctx context.Context, a *Attachment, listen func() (T, error)) (T, error) {
	waited := false
	for ctx.Err() == nil {
		standby := a.link.admitted() != nil
		l, err := listen()
		if err != nil && standby {
			waited = true
			sleep.For(ctx, connect.AdmitInterval)
			continue
		}
		if err == nil && waited {
			a.synchroniseFirst(ctx)
		}
		return l, err
	}
	var none T
	return none, nil
}

// synchroniseFirst synchronises as soon as this agent is admitted, within RuntimeTimeout.
func (a *Attachment) synchroniseFirst(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.o.RuntimeTimeout)
	defer cancel()
	for {
		err := a.lists.synchronise(ctx)
		a.noteLive(false, err)
		if err == nil || ctx.Err() != nil {
			return
		}
		sleep.For(ctx, connect.AdmitInterval)
	}
}

// closeAll closes listeners that are not served.
func closeAll(sockets []served) error {
	var errs []error
	for _, s := range sockets {
		errs = append(errs, s.listener.Close())
	}
	return errors.Join(errs...)
}
