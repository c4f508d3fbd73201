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

// Options are the settings of a manager. Log is required, and Directory or Watch.
type Options struct {
	// Directory is where plugins register: it has the manager's socket, kubelet.sock, and theirs;
	// "" for none.
	Directory string
	// Watch are directories in which plugins put sockets that serve pluginregistration.v1.
	Watch []string
	// Timeout is how long one plugin may take for one call.
	Timeout time.Duration
	// Names are the resources whose requests other plugins serve, by the resource that pods request.
	Names map[string]string
	// Fail: a container is refused if a plugin cannot allocate what it requests.
	Fail bool
	// Reconcile is how often plugins are asked what they have allocated.
	Reconcile time.Duration
	// Live returns the UIDs of the node's pods; nil if that is not known.
	Live func() map[string]bool
	// Changed is called with pods whose allocations plugins have changed; nil for never.
	Changed func(podUIDs []string)
	// Saved is the state that an earlier manager saved; nil for none. Save replaces it; nil if
	// nothing is kept.
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
	// reopen is the pause before the socket is opened again.
	reopen = time.Second
)

// Manager is the manager of a node's plugins.
type Manager struct {
	o       Options
	changed chan struct{} // has an element if there is something to save or to remove

	mu       sync.Mutex // guards all below; never held during a call
	plugins  map[string]*plugin
	pods     map[string]*pod            // what plugins have allocated, by pod UID
	removals map[string]map[string]bool // pods to be released, by resource and UID
	removing map[removal]chan struct{}  // releases under way
	synced   bool                       // the node's pods are known
	orphans  map[removal]bool           // pods of plugins that the node does not have, once seen
	err      string                     // why the socket is not served
	refusals []Refused                  // registrations that were refused, the last ones
}

// Refused is a registration that was refused.
type Refused struct {
	At                       time.Time
	Resource, Endpoint, Text string
}

// maxRefused limits the refused registrations that are kept.
const maxRefused = 8

// New makes a manager. It knows what the saved state has, and calls nobody before Run.
func New(o Options) *Manager {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Recorder == nil {
		o.Recorder = noRecorder{}
	}
	m := &Manager{
		o: o, changed: make(chan struct{}, 1), plugins: map[string]*plugin{}, pods: map[string]*pod{},
		removals: map[string]map[string]bool{}, removing: map[removal]chan struct{}{}, orphans: map[removal]bool{},
	}
	m.restore(o.Saved)
	return m
}

// Run serves registrations, watches directories, releases what pods had and reconciles, until ctx
// ends.
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

// registration is what a plugin says about itself.
type registration struct {
	resource, socket, version string
	// watched: it was found in a directory, and ends with its socket.
	watched bool
	options options
	known   bool // options are known
}

var errLimit = fmt.Errorf("there are %d plugins, which is the limit", maxPlugins)

// register puts a plugin into force. The newest registration of a resource replaces the one before,
// as in the kubelet.
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
			err = fmt.Errorf("ask its options: %w", err)
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
		return fmt.Errorf("%q is no name of a resource", short(r.resource))
	case !filepath.IsAbs(r.socket) || len(r.socket) > maxSocket:
		return errors.New("its endpoint is no path of a socket")
	case len(r.options.associated) > maxPlugins:
		return errors.New("it names too many associated devices")
	}
	return checkSocket(r.socket)
}

// refuse notes a refused registration.
func (m *Manager) refuse(r registration, err error) {
	m.o.Log.Warn("a resource plugin was refused", logkey.Key, short(r.resource), logkey.Socket, short(r.socket), logkey.Err, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.refusals = append(m.refusals, Refused{m.o.Now(), short(r.resource), short(r.socket), err.Error()})
	if len(m.refusals) > maxRefused {
		m.refusals = m.refusals[len(m.refusals)-maxRefused:]
	}
}

// drop ends the registration of a socket that is gone. What the plugin allocated stays known.
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

// wake has the state saved, and pending releases tried.
func (m *Manager) wake() {
	select {
	case m.changed <- struct{}{}:
	default:
	}
}
