package kube

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// Service is a part that works through the API server: reports, configuration,
// sources.
type Service interface {
	// Run works until ctx ends. It tries again what fails.
	Run(ctx context.Context)
}

// Run runs services until ctx ends.
func Run(ctx context.Context, services ...Service) {
	var group errgroup.Group
	for _, s := range services {
		group.Go(func() error { s.Run(ctx); return nil })
	}
	_ = group.Wait() // no service ends with an error
}

// Releaser is a service that takes back what it wrote about this node once the agent
// gave everything back.
type Releaser interface {
	Service
	// Release takes it back now. Run would do so soon, but the agent, or its rights, may
	// be removed before that.
	Release(ctx context.Context) error
}

// Release has services take back what they wrote. The error says what is left.
func Release(ctx context.Context, services ...Service) error {
	var errs []error
	for _, s := range services {
		if r, ok := s.(Releaser); ok {
			errs = append(errs, r.Release(ctx))
		}
	}
	return errors.Join(errs...)
}
