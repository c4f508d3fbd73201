package qrm

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/report/logkey"
	"github.com/trimtab/trimtab/internal/sleep"
)

// Options are the settings of a manager. Log is required, and at least one of Directory and WatchDirectories.
type Options struct {
	// Directory is the directory in which plugins register; "" for none. The manager's socket, kubelet.sock, and the
	// sockets of plugins are in this directory.
	Directory string
	// WatchDirectories are directories in which plugins put sockets that serve pluginregistration.v1.
	WatchDirectories []string
	// DevDirectory is the directory in which the agent sees the node's device nodes; "" for /dev. Plugins use paths in
	// /dev.
	DevDirectory string
	// Timeout is the time that one plugin may take for one call.
	Timeout time.Duration
	// ResourceNames maps a resource that pods request to the resource under which a plugin registered.
	ResourceNames map[string]string
	// FailClosed refuses a container if a plugin cannot allocate a resource that the container requests.
	FailClosed bool
	// PodScope reports whether topologyManager.scope is pod; nil if the scope is always container.
	PodScope func() bool
	// ReconcileInterval is the interval at which the manager asks plugins for their allocations; 0 for never.
	ReconcileInterval time.Duration
	// LivePods returns the UIDs of the node's pods; nil if they are unknown.
	LivePods func() map[string]bool
	// AllocationsChanged is called with the pods whose allocations plugins have changed; nil for no call.
	AllocationsChanged func(podUIDs []string)
	// NodeDevices returns all devices of the kubelet's device plugins; nil if the manager does not send plugins lists
	// of devices. AssignedDevices returns the ids of the devices that the kubelet has assigned to a container, by
	// resource; nil if the manager does not ask plugins about devices.
	NodeDevices     func(ctx context.Context) ([]lifecycle.KubeletDevice, error)
	AssignedDevices func(ctx context.Context, pod *lifecycle.Pod, container string) map[string][]string
	// ReadReports makes the manager ask plugins for reports about each container's resources. The method Amounts
	// returns the amounts in these reports.
	ReadReports bool
	// SavedState is the state that an earlier manager saved; nil for none. SaveState replaces the saved state. If
	// SaveState is nil, the manager saves nothing.
	SavedState []byte
	SaveState  func([]byte) error
	// Recorder counts calls; nil for none.
	Recorder Recorder
	Log      *slog.Logger
	// Now is the clock; nil for the system clock.
	Now func() time.Time
}

// Recorder counts calls, for metrics. Its method does not block.
type Recorder interface {
	CountCall(resource, method string, result Result, took time.Duration)
}

// noRecorder counts nothing. The manager uses it if Options.Recorder is nil.
type noRecorder struct{}

func (noRecorder) CountCall(string, string, Result, time.Duration) {}

const (
	// socketName is the manager's socket in Directory, as plugins expect it.
	socketName = "kubelet.sock"
	// version is the protocol's only version.
	version = "v1alpha1"
	// maxPlugins limits the registered plugins.
	maxPlugins = 64
	// reopenPause is the pause before the manager opens its socket again.
	reopenPause = time.Second
)

// Manager is the manager of a node's plugins.
type Manager struct {
	opts        Options
	workPending chan struct{} // has an element if the state must be saved, or a plugin must release the allocations of a pod
	reportsDue  chan struct{} // has an element if allocations possibly changed, so that plugins must send new reports

	mu                 sync.Mutex // guards all below; never held during a call
	plugins            map[string]*plugin
	pods               map[string]*pod                     // the allocations of plugins, by pod UID
	removals           map[string]map[string]bool          // pods whose allocations plugins must release, by resource and pod UID
	removalsInProgress map[removal]chan struct{}           // releases that are in progress
	releasedEnded      bool                                // ReleaseEnded was called, so the manager knows which pods have ended
	unknownPods        map[removal]bool                    // pods that a plugin's last list has, but the node does not have
	allocatable        map[string][]lifecycle.PluginAmount // the amounts that plugins last reported as allocatable, by plugin resource
	err                string                              // the reason why the manager cannot serve its socket
	refusals           []RefusedRegistration               // the last refused registrations
}

// RefusedRegistration is a registration that the manager refused. Text is the reason.
type RefusedRegistration struct {
	At                       time.Time
	Resource, Endpoint, Text string
}

// maxRefused limits the refused registrations that the manager stores.
const maxRefused = 8

// New makes a manager with the saved state. Run starts it.
func New(o Options) *Manager {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.DevDirectory == "" {
		o.DevDirectory = "/dev"
	}
	if o.Recorder == nil {
		o.Recorder = noRecorder{}
	}
	m := &Manager{
		opts: o, workPending: make(chan struct{}, 1), reportsDue: make(chan struct{}, 1), plugins: map[string]*plugin{}, pods: map[string]*pod{},
		removals: map[string]map[string]bool{}, removalsInProgress: map[removal]chan struct{}{}, unknownPods: map[removal]bool{},
		allocatable: map[string][]lifecycle.PluginAmount{},
	}
	m.restoreState(o.SavedState)
	return m
}

// Run serves registrations, watches directories, releases pods, reads reports and reconciles allocations, until ctx
// ends.
func (m *Manager) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if m.opts.Directory != "" {
		group.Go(func() error { m.serve(ctx); return nil })
	}
	if len(m.opts.WatchDirectories) > 0 {
		group.Go(func() error { return m.watchSockets(ctx) })
	}
	group.Go(func() error { m.saveAndRelease(ctx); return nil })
	if m.opts.ReadReports {
		group.Go(func() error { m.readReports(ctx); return nil })
	}
	if m.opts.ReconcileInterval > 0 {
		group.Go(func() error { m.reconcileAll(ctx); return nil })
	}
	err := group.Wait()
	m.saveState()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.plugins {
		p.close()
	}
	return err
}

// registration is what the manager knows about a plugin from the plugin's registration.
type registration struct {
	resource, socket, version string
	// foundInDirectory means that the manager found the plugin's socket in a watched directory. The manager records
	// when such a socket disappears.
	foundInDirectory bool
	options          options
	hasOptions       bool // options is set; otherwise the manager must ask the plugin for its options
}

var errTooManyPlugins = fmt.Errorf("%d plugins are registered already, and the agent accepts no more", maxPlugins)

// register registers a plugin for a resource. It replaces an earlier registration for the resource. Katalyst's kubelet
// does the same.
func (m *Manager) register(ctx context.Context, r registration) error {
	err := m.checkRegistration(ctx, &r)
	if err != nil {
		m.storeRefusal(r, err)
		return err
	}
	p := newPlugin(r, &m.opts)
	if !r.hasOptions {
		if p.options, err = p.askOptions(ctx); err != nil {
			p.close()
			err = fmt.Errorf("ask the plugin for its options: %w", err)
			m.storeRefusal(r, err)
			return err
		}
	}
	if n := len(p.options.associatedDevices); n > maxPlugins {
		p.close()
		err = fmt.Errorf("the plugin names %d associated devices; the agent accepts at most %d", n, maxPlugins)
		m.storeRefusal(r, err)
		return err
	}
	m.mu.Lock()
	old := m.plugins[r.resource]
	if old == nil && len(m.plugins) >= maxPlugins {
		m.mu.Unlock()
		p.close()
		m.storeRefusal(r, errTooManyPlugins)
		return errTooManyPlugins
	}
	if m.plugins[r.resource] = p; old != nil {
		p.replaced = old.replaced + 1
		old.close()
	}
	m.mu.Unlock()
	m.opts.Log.Info("a resource plugin has registered", logkey.Key, r.resource, logkey.Socket, r.socket)
	m.wake()
	return nil
}

// checkRegistration checks a registration before the manager calls the plugin.
func (m *Manager) checkRegistration(_ context.Context, r *registration) error {
	switch {
	case r.version != "" && r.version != version:
		return fmt.Errorf("protocol version %q is not supported: the agent supports only %s", shorten(r.version), version)
	case !isResourceName(r.resource):
		return fmt.Errorf("%q is not the name of a resource", shorten(r.resource))
	case !filepath.IsAbs(r.socket) || len(r.socket) > maxSocketPath:
		return fmt.Errorf("endpoint %q is not the absolute path of a socket", shorten(r.socket))
	}
	return checkSocket(r.socket)
}

// storeRefusal logs and stores a refused registration.
func (m *Manager) storeRefusal(r registration, err error) {
	m.opts.Log.Warn("the agent refused a resource plugin", logkey.Key, shorten(r.resource), logkey.Socket, shorten(r.socket), logkey.Err, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusals = append(m.refusals, RefusedRegistration{m.opts.Now(), shorten(r.resource), shorten(r.socket), err.Error()})
	if len(m.refusals) > maxRefused {
		m.refusals = m.refusals[len(m.refusals)-maxRefused:]
	}
}

// noteRemovedSocket records that the socket of a plugin was removed from a watched directory. The plugin stays
// registered, and the manager keeps the plugin's allocations.
func (m *Manager) noteRemovedSocket(socket string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.plugins {
		if p.socket == socket && p.foundInDirectory {
			p.markSocketRemoved()
		}
	}
}

// sortedPlugins returns the plugins, sorted by resource.
func (m *Manager) sortedPlugins() []*plugin {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*plugin, 0, len(m.plugins))
	for _, name := range slices.Sorted(maps.Keys(m.plugins)) {
		out = append(out, m.plugins[name])
	}
	return out
}

// wake makes saveAndRelease save the state and try pending releases. It also makes readReports read reports about
// changed allocations.
func (m *Manager) wake() {
	sleep.Wake(m.workPending)
	sleep.Wake(m.reportsDue)
}
