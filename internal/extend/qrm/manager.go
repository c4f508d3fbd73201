package qrm

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/trimtab/trimtab/internal/report/logkey"
)

// Options are the settings of a manager. Log and one of Directory and Watch are required.
type Options struct {
	// Directory is where plugins register: it has the manager's socket, kubelet.sock, and the plugins'
	// sockets; "" for none.
	Directory string
	// Watch are directories in which plugins put sockets that serve pluginregistration.v1.
	Watch []string
	// Timeout is how long one plugin may take for one call.
	Timeout time.Duration
	// Names maps a resource that pods request to the resource under which a plugin registered.
	Names map[string]string
	// Fail refuses a container if a plugin cannot allocate what the container requests.
	Fail bool
	// Pod reports whether the topology manager has the scope pod; nil for never.
	Pod func() bool
	// Reconcile is how often the manager asks plugins for their allocations.
	Reconcile time.Duration
	// Live returns the UIDs of the node's pods; nil if they are unknown.
	Live func() map[string]bool
	// Changed is called with pods whose allocations plugins have changed; nil for never.
	Changed func(podUIDs []string)
	// Saved is the state that an earlier manager saved; nil for none. Save replaces the saved state; nil if
	// no state is saved.
	Saved []byte
	Save  func([]byte) error
	// Recorder counts calls; nil for none.
	Recorder Recorder
	Log      *slog.Logger
	// Now is the clock; nil for the real one.
	Now func() time.Time
}

// Recorder counts calls, for metrics. Its method returns at once.
type Recorder interface {
	Call(resource, method string, result Result, took time.Duration)
}

type noRecorder struct{}

func (noRecorder) Call(string, string, Result, time.Duration) {}

const (
	// socketName is the manager's socket in Directory, as plugins expect it.
	socketName = "kubelet.sock"
	// version is the protocol's only version.
	version = "v1alpha1"
	// maxPlugins limits the registered plugins.
	maxPlugins = 64
	// reopen is the pause before the manager opens its socket again.
	reopen = time.Second
)

// Manager is the manager of a node's plugins.
type Manager struct {
	o       Options
	changed chan struct{} // has an element if the state must be saved or a pod released

	mu        sync.Mutex // guards all below; never held during a call
	plugins   map[string]*plugin
	pods      map[string]*pod            // the allocations of plugins, by pod UID
	removals  map[string]map[string]bool // pods that must be released, by resource and UID
	removing  map[removal]chan struct{}  // releases that are in progress
	synced    bool                       // the node's pods are known
	unclaimed map[removal]bool           // pods that a plugin has and the node lacks, seen once
	err       string                     // why the socket cannot be served
	refusals  []Refused                  // the last registrations that were refused
}

// Refused is a registration that was refused.
type Refused struct {
	At                       time.Time
	Resource, Endpoint, Text string
}

// maxRefused limits the refused registrations that are kept.
const maxRefused = 8

// New makes a manager with the saved state. It calls no plugin before Run.
func New(o Options) *Manager {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Recorder == nil {
		o.Recorder = noRecorder{}
	}
	m := &Manager{
		o: o, changed: make(chan struct{}, 1), plugins: map[string]*plugin{}, pods: map[string]*pod{},
		removals: map[string]map[string]bool{}, removing: map[removal]chan struct{}{}, unclaimed: map[removal]bool{},
	}
	m.restore(o.Saved)
	return m
}

// Run serves registrations, watches directories, releases pods and reconciles allocations, until ctx ends.
func (m *Manager) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if m.o.Directory != "" {
		group.Go(func() error { m.serve(ctx); return nil })
	}
	if len(m.o.Watch) > 0 {
		group.Go(func() error { return m.watch(ctx) })
	}
	group.Go(func() error { m.work(ctx); return nil })
	if m.o.Reconcile > 0 {
		group.Go(func() error { m.reconcileAll(ctx); return nil })
	}
	err := group.Wait()
	m.save()
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.plugins {
		p.close()
	}
	return err
}

// registration is the data that a plugin sends about itself.
type registration struct {
	resource, socket, version string
	// watched means that the plugin was found in a directory. Its registration ends when its socket
	// disappears.
	watched bool
	options options
	known   bool // whether the options were read
}

var errLimit = fmt.Errorf("there are %d plugins already, which is the limit", maxPlugins)

// register makes a plugin the one for its resource. The newest registration replaces the previous one, as
// in the kubelet.
func (m *Manager) register(ctx context.Context, r registration) error {
	err := m.admit(ctx, &r)
	if err != nil {
		m.refuse(r, err)
		return err
	}
	p := newPlugin(r, &m.o)
	if !r.known {
		if p.options, err = p.askOptions(ctx); err != nil {
			p.close()
			err = fmt.Errorf("ask the plugin for its options: %w", err)
			m.refuse(r, err)
			return err
		}
	}
	m.mu.Lock()
	old := m.plugins[r.resource]
	if old == nil && len(m.plugins) >= maxPlugins {
		m.mu.Unlock()
		p.close()
		m.refuse(r, errLimit)
		return errLimit
	}
	if m.plugins[r.resource] = p; old != nil {
		p.replaced = old.replaced + 1
		old.close()
	}
	m.mu.Unlock()
	m.o.Log.Info("resource plugin registered", logkey.Key, r.resource, logkey.Socket, r.socket)
	m.wake()
	return nil
}

// admit checks a registration before its plugin is called.
func (m *Manager) admit(_ context.Context, r *registration) error {
	switch {
	case r.version != "" && r.version != version:
		return fmt.Errorf("version %q is not supported: want %s", short(r.version), version)
	case !isName(r.resource):
		return fmt.Errorf("%q is not the name of a resource", short(r.resource))
	case !filepath.IsAbs(r.socket) || len(r.socket) > maxSocket:
		return errors.New("its endpoint is not the path of a socket")
	case len(r.options.associated) > maxPlugins:
		return errors.New("it names too many associated devices")
	}
	return checkSocket(r.socket)
}

// refuse notes a refused registration.
func (m *Manager) refuse(r registration, err error) {
	m.o.Log.Warn("the agent refused a resource plugin", logkey.Key, short(r.resource), logkey.Socket, short(r.socket), logkey.Err, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusals = append(m.refusals, Refused{m.o.Now(), short(r.resource), short(r.socket), err.Error()})
	if len(m.refusals) > maxRefused {
		m.refusals = m.refusals[len(m.refusals)-maxRefused:]
	}
}

// drop ends the registration of a socket that has disappeared. The plugin's allocations stay known.
func (m *Manager) drop(socket string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.plugins {
		if p.socket == socket && p.watched {
			p.noteGone()
		}
	}
}

// all returns the plugins, sorted by resource.
func (m *Manager) all() []*plugin {
	m.mu.Lock()
	defer m.mu.Unlock()
	out := make([]*plugin, 0, len(m.plugins))
	for _, name := range slices.Sorted(maps.Keys(m.plugins)) {
		out = append(out, m.plugins[name])
	}
	return out
}

// wake makes work save the state and try pending releases.
func (m *Manager) wake() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}
