package kube

import (
	"context"
	"errors"

	"golang.org/x/sync/errgroup"
)

// Service is a task of the agent that uses the API server: it writes reports, or reads configuration or facts.
type Service interface {
	// Run works until ctx ends. It repeats failed requests.
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

// Releaser is a service that can remove the objects that it wrote about this node, after the agent has restored the
// node.
type Releaser interface {
	Service
	// Release removes the objects at once. Run would remove them later. Possibly an administrator removes the agent or
	// its rights before Run does that.
	Release(ctx context.Context) error
}

// Release calls Release of the services that are a Releaser. The error names the objects that could not be removed.
func Release(ctx context.Context, services ...Service) error {
	var errs []error
	for _, s := range services {
		if r, ok := s.(Releaser); ok {
			errs = append(errs, r.Release(ctx))
		}
	}
	return errors.Join(errs...)
}
