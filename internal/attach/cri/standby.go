package cri

import (
	"context"
	"errors"

	"github.com/trimtab/trimtab/internal/attach/connect"
	"github.com/trimtab/trimtab/internal/sleep"
)

// opened opens what is served. The agent that works on the node may serve the same
// socket: then it is waited for, and callers wait in the socket until what runs is
// known, or for as long as the patience with the runtime lasts.
func opened[T any](ctx context.Context, a *Attachment, listen func() (T, error)) (T, error) {
	waited := false
	for ctx.Err() == nil {
		standby := a.link.admitted() != nil
		l, err := listen()
		if err != nil && standby {
			waited = true
			sleep.For(ctx, connect.AdmitAgain)
			continue
		}
		if err == nil && waited {
			a.catchUp(ctx)
		}
		return l, err
	}
	var none T
	return none, nil
}

// catchUp synchronises as soon as this agent may, within the patience.
func (a *Attachment) catchUp(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, a.o.Patience)
	defer cancel()
	for {
		err := a.lists.synchronise(ctx)
		a.noteLive(false, err)
		if err == nil || ctx.Err() != nil {
			return
		}
		sleep.For(ctx, connect.AdmitAgain)
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
