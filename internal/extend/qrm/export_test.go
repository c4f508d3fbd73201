package qrm

import (
	"context"
	"sync"

	api "github.com/trimtab/trimtab/api/resourceplugin/v1alpha1"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// ValuesOf converts an answer, with device nodes below dev.
func ValuesOf(dev, resource string, from *api.ResourceAllocation) ([]lifecycle.Value, []lifecycle.Problem) {
	return valuesOf(dev, resource, from)
}

// ReconcileOnce asks all plugins for their allocations, and for the reports that are due at a tick.
func (m *Manager) ReconcileOnce(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range m.sortedPlugins() {
		all.Go(func() {
			m.reconcile(ctx, p)
			m.readReportsOf(ctx, p, m.dueReports(p, reportBatch))
		})
	}
	all.Wait()
}

// Register registers a plugin at a socket, without options.
func (m *Manager) Register(ctx context.Context, resource, socket string) error {
	return m.register(ctx, registration{resource: resource, socket: socket, version: version, hasOptions: true})
}

// Close closes the connections to plugins of a manager that does not run.
func (m *Manager) Close() {
	for _, p := range m.sortedPlugins() {
		p.close()
	}
}
