package cri

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"

	hooks "github.com/trimtab/trimtab/api/runtime/v1alpha1"
	"github.com/trimtab/trimtab/internal/report/logkey"
)

// HookService configures an attachment that is the hook server of an existing runtime proxy, instead of a proxy itself.
// The attachment serves runtime.v1alpha1.RuntimeHookService, and asks the runtime for what the proxy does not send.
type HookService struct {
	// Socket is the path on which the hook service listens.
	Socket string
	// RegistrationFile is the path of the file by which proxies find the hook service; "" for no file.
	RegistrationFile string
	// OmittedStages are the hook stages, such as PreStartContainer, that RegistrationFile does not list.
	OmittedStages []string
}

// runHooks serves the hook calls of a runtime proxy until ctx ends. It then calls stop, which ends the context of the
// queued functions.
func (a *Attachment) runHooks(ctx context.Context, stop context.CancelFunc) error {
	l, err := openSocketsWhenAdmitted(ctx, a, func() (net.Listener, error) { return listenAt("hookServers.socket", a.o.Hooks.Socket) })
	if err != nil {
		return fmt.Errorf("hook service: %w", err)
	}
	if ctx.Err() != nil {
		if l != nil {
			err = l.Close()
		}
		return err
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(a.hookService.intercept))
	hooks.RegisterRuntimeHookServiceServer(server, a.hookService)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return serveUntilStopped(l, server) })
	a.log.Info("the agent serves hooks for a runtime proxy", logkey.Socket, a.o.Hooks.Socket)
	if a.o.Hooks.RegistrationFile != "" {
		if err := RegisterHookService(*a.o.Hooks, a.o.FailClosed); err != nil {
			// The agent continues without the file, because an operator may have written the file by hand.
			a.log.Error("the agent cannot write the file by which runtime proxies find the hook service", logkey.File, a.o.Hooks.RegistrationFile, logkey.Err, err)
		}
	}
	group.Go(func() error { a.watchRuntime(ctx); return nil })
	<-ctx.Done()
	stopGracefully(server, gracePeriod)
	stop()
	err = group.Wait()
	a.queues.work.Wait()
	return err
}

// stopGracefully stops a server when its running calls have ended, but at the latest after the duration bound. Without
// a bound, a proxy that does not read its answer would keep the agent from ending.
func stopGracefully(s *grpc.Server, bound time.Duration) {
	cut := time.AfterFunc(bound, s.Stop)
	defer cut.Stop()
	s.GracefulStop()
}

// serveUntilStopped serves hook calls on a listener until the server is stopped.
func serveUntilStopped(l net.Listener, s *grpc.Server) error {
	if err := s.Serve(l); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
		return fmt.Errorf("serve hooks: %w", err)
	}
	return nil
}
