package sim

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// Driver is the cgroup driver: how cgroups are named.
type Driver string

// The cgroup drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// Options are what a runtime is made of.
type Options struct {
	Machine *topology.Machine
	Kernel  *kernel.Cgroups
	Version cgroup.Version
	Resctrl *kernel.Resctrl // nil for a machine without
	Cookies *kernel.Cookies // likewise
	Host    *lifecycle.Host // whose device nodes containers may ask for; nil for none
	Driver  Driver
	Socket  string // where plugins connect
	// Crowded: containers do not look at each other at their first instruction,
	// which takes long where there are a thousand.
	Crowded bool
	Log     *slog.Logger
	Kind    Kind   // that it behaves like
	Seed    string // container ids are made of it and of names alone
	// Observe is called with every NRI event after its answer, while the runtime
	// waits. It must not call back. It may be nil.
	Observe func(Event)
	// Sent is called with all resources that plugins send over NRI and clients over
	// CRI. It may be nil.
	Sent func(Sent)

	memory *memory // where plugins connect instead of at Socket; nil for the socket
}

// Event is one NRI event and what the plugins answered.
type Event struct {
	Kind    string // as NRI names it
	Ref     scenario.Ref
	Adjust  *api.ContainerAdjustment
	Updates []Change
	Err     error
}

// Change is a plugin's update of one container.
type Change struct {
	Ref       scenario.Ref
	Resources *api.LinuxResources
	Err       error
}

// Runtime is the embedded runtime. All its methods may be called at once; like
// containerd it does one thing at a time, and a plugin that asks for an update
// inside an event waits for itself.
type Runtime struct {
	o Options

	// life is held for reading by every operation and for writing while the NRI
	// side starts and stops. Order of locks: life, plugin synchronisation of the
	// adaptation, mu, the adaptation's own.
	life  sync.RWMutex
	nri   *adaptation.Adaptation // nil while down
	relay *relay
	inner string // directory of the adaptation's own socket

	starting atomic.Bool // nobody can have connected yet

	syncs counter // plugins synchronised so far

	mu         sync.Mutex
	pods       map[scenario.Ref]*sandbox
	containers map[scenario.Ref]*container
	made       int // pods and containers made so far: the clock of creation times
}

// errDown is the answer to requests while the runtime is not running.
var errDown = errors.New("runtime: is down")

// NewRuntime makes a runtime and the cgroups every node with a kubelet has.
// Nothing listens before Start.
func NewRuntime(o Options) (*Runtime, error) {
	switch {
	case o.Machine == nil || o.Kernel == nil:
		return nil, errors.New("runtime: no machine or no kernel")
	case o.Version != cgroup.V1 && o.Version != cgroup.V2:
		return nil, fmt.Errorf("runtime: cgroup version %d", o.Version)
	case o.Driver != Cgroupfs && o.Driver != Systemd:
		return nil, fmt.Errorf("runtime: cgroup driver %q is neither cgroupfs nor systemd", o.Driver)
	case o.Socket == "":
		return nil, errors.New("runtime: no socket")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runtime{o: o, pods: map[scenario.Ref]*sandbox{}, containers: map[scenario.Ref]*container{}}
	for _, qos := range []string{"Burstable", "BestEffort"} {
		if err := r.o.Kernel.MkdirRunc(r.qosDir(qos)); err != nil {
			return nil, fmt.Errorf("runtime: %w", err)
		}
	}
	return r, nil
}

// Start opens the NRI socket.
func (r *Runtime) Start(_ context.Context) error {
	r.life.Lock()
	defer r.life.Unlock()
	if r.nri != nil {
		return errors.New("runtime: is running already")
	}
	return r.startLocked()
}

func (r *Runtime) startLocked() error {
	if r.o.memory != nil {
		return r.startInMemory()
	}
	inner, err := os.MkdirTemp("", "trimtab-sim-")
	if err != nil {
		return fmt.Errorf("runtime: %w", err)
	}
	socket := filepath.Join(inner, "nri")
	name, version := r.o.Kind.onNRI()
	nri, err := adaptation.New(name, version, r.synchronize, r.unsolicited,
		adaptation.WithSocketPath(socket),
		adaptation.WithPluginPath(filepath.Join(inner, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(inner, "conf.d")))
	if err == nil {
		r.starting.Store(true)
		err = nri.Start()
		r.starting.Store(false)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("runtime: %w", err), os.RemoveAll(inner))
	}
	outer, err := listen(r.o.Socket, socket)
	if err != nil {
		nri.Stop()
		return errors.Join(fmt.Errorf("runtime: %w", err), os.RemoveAll(inner))
	}
	r.nri, r.relay, r.inner = nri, outer, inner
	return nil
}

// Stop closes the socket and every plugin's connection. Containers live on.
func (r *Runtime) Stop() {
	r.life.Lock()
	defer r.life.Unlock()
	r.stopLocked()
}

func (r *Runtime) stopLocked() {
	if r.nri == nil {
		return
	}
	if r.o.memory != nil {
		r.o.memory.leave(r.o.Socket)
		r.nri.Stop()
		r.nri = nil
		return
	}
	r.relay.close()
	r.nri.Stop()
	if err := os.RemoveAll(r.inner); err != nil {
		r.o.Log.Warn("inner socket stays", "err", err)
	}
	r.nri = nil
}

// Restart is what a restart of the runtime looks like from outside: the socket
// vanishes, connections end, a new socket comes, and containers live on.
func (r *Runtime) Restart(_ context.Context) error {
	r.life.Lock()
	defer r.life.Unlock()
	r.stopLocked()
	return r.startLocked()
}

// begin starts an operation. While it lasts no plugin is synchronised, so that
// none misses what changes. The returned function ends it.
func (r *Runtime) begin() (*adaptation.Adaptation, func(), error) {
	r.life.RLock()
	if r.nri == nil {
		r.life.RUnlock()
		return nil, nil, errDown
	}
	block := r.nri.BlockPluginSync()
	r.mu.Lock()
	return r.nri, func() {
		r.mu.Unlock()
		block.Unblock()
		r.life.RUnlock()
	}, nil
}

func (r *Runtime) observe(e Event) {
	if r.o.Observe != nil {
		r.o.Observe(e)
	}
}

// synchronize tells a plugin of all that lives and applies what it asks for. It
// is called by the adaptation, which sees to it that no operation is under way.
func (r *Runtime) synchronize(ctx context.Context, tell adaptation.SyncCB) error {
	if r.starting.Load() {
		return nil // the call for plugins the runtime launches; it launches none
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pods, containers := r.listedLocked()
	updates, err := tell(ctx, pods, containers)
	if err != nil {
		r.observe(Event{Kind: "Synchronize", Err: err})
		return err
	}
	changes, _ := r.applyUpdates(updates)
	r.observe(Event{Kind: "Synchronize", Updates: changes})
	r.syncs.add()
	return nil
}

// Listed is what a plugin gets by Synchronize.
func (r *Runtime) Listed() ([]*api.PodSandbox, []*api.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listedLocked()
}

func (r *Runtime) listedLocked() (pods []*api.PodSandbox, containers []*api.Container) {
	for _, p := range r.sortedPods() {
		pods = append(pods, p.nri(r))
	}
	for _, c := range r.sortedContainers() {
		if c.state != api.ContainerState_CONTAINER_STOPPED {
			containers = append(containers, c.nri())
		}
	}
	return pods, containers
}

// unsolicited applies updates a plugin asks for on its own account and returns
// those that failed.
func (r *Runtime) unsolicited(_ context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	for r.o.memory != nil && !r.mu.TryLock() {
		travel() // in a bubble no time passes for who waits for a mutex
	}
	if r.o.memory == nil {
		r.mu.Lock()
	}
	defer r.mu.Unlock()
	r.noteUpdates(updates, "")
	changes, failed := r.applyUpdates(updates)
	r.observe(Event{Kind: "UpdateContainers", Updates: changes})
	return failed, nil
}
