package cri

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/sleep"
)

// openSocketsWhenAdmitted opens the sockets with the function listen. If another agent on the node still serves a
// socket, it first waits until that agent has ended. After such a wait, it also stores the runtime's pods and
// containers before it returns, but tries this at most for RuntimeTimeout. Callers that connect in this time wait. If
// ctx ends first, openSocketsWhenAdmitted returns no socket and no error.
func openSocketsWhenAdmitted[T any](ctx context.Context, a *Attachment, listen func() (T, error)) (T, error) {
	waited := false
	for ctx.Err() == nil {
		standby := a.link.checkAdmission() != nil
		l, err := listen()
		if err != nil && standby {
			waited = true
			sleep.For(ctx, connect.DefaultAdmitInterval)
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

// synchroniseFirst fills the store when this agent is admitted. It tries at most for RuntimeTimeout.
func (a *Attachment) synchroniseFirst(ctx context.Context) {
	_ = wait.PollUntilContextTimeout(ctx, connect.DefaultAdmitInterval, a.o.RuntimeTimeout, true, func(ctx context.Context) (synchronised bool, _ error) {
		err := a.lists.synchronise(ctx)
		a.notifyConnected(false, err)
		return err == nil, nil
	})
}

// closeAll closes listeners, and returns all errors.
func closeAll(sockets []relayedListener) error {
	var errs []error
	for _, s := range sockets {
		errs = append(errs, s.listener.Close())
	}
	return errors.Join(errs...)
}
