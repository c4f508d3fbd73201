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

// Driver is the cgroup driver, which decides the names of cgroups.
type Driver string

// The cgroup drivers.
const (
	Cgroupfs Driver = "cgroupfs"
	Systemd  Driver = "systemd"
)

// Options are the options of a runtime.
type Options struct {
	Machine   *topology.Machine
	Kernel    *kernel.Cgroups
	Version   cgroup.Version
	Resctrl   *kernel.Resctrl   // nil if the machine has none
	Cookies   *kernel.Cookies   // nil if the kernel has none
	Processes *kernel.Processes // nil if no agent sets attributes of processes
	Links     *kernel.Links     // nil if it is not known which network interfaces the host has
	Host      *lifecycle.Host   // its device nodes are available to containers; nil for none
	Driver    Driver
	Socket    string // where plugins connect
	// KnowsCDI reports whether the runtime can inject the device of a CDI name. It refuses a container with another
	// name. nil knows all names.
	KnowsCDI func(name string) bool
	// Crowded: First has no Others, which would take long with a thousand containers
	Crowded bool
	Log     *slog.Logger
	Kind    Kind   // the runtime that it imitates
	Seed    string // container ids depend only on it and on names
	// Observe is called with every NRI event after its answer, while the runtime waits. It must not call the runtime. It
	// may be nil.
	Observe func(Event)
	// Sent is called with all resources that plugins send over NRI and clients over CRI. It may be nil.
	Sent func(Sent)

	memory *memory // where plugins connect instead of Socket; nil for Socket
}

// Event is one NRI event with the plugins' answer.
type Event struct {
	Kind    string // NRI's name of the event
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

// Runtime is the embedded runtime. Its methods are safe for concurrent use. Like containerd it does one operation at a
// time, so a plugin that requests an update inside an event waits for itself.
type Runtime struct {
	o Options

	// life is held for reading by every operation and for writing while the NRI
	// side starts and stops. Order of locks: life, plugin synchronisation of the
	// adaptation, mu, the adaptation's own.
	life  sync.RWMutex
	nri   *adaptation.Adaptation // nil while stopped
	relay *relay
	inner string // directory of the adaptation's own socket

	starting atomic.Bool // no plugin can be connected yet

	syncs counter // number of synchronisations so far

	mu         sync.Mutex
	pods       map[scenario.Ref]*sandbox
	containers map[scenario.Ref]*container
	made       int // number of pods and containers made so far, in place of creation times
}

// errDown is the error of requests while the runtime is stopped.
var errDown = errors.New("runtime: is down")

// NewRuntime makes a runtime and the cgroups that a kubelet makes on every node. It does not listen before Start.
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

// Stop closes the socket and every plugin's connection. Containers keep running.
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
		r.o.Log.Warn("inner socket is not removed", "err", err)
	}
	r.nri = nil
}

// Restart does what a plugin sees of a restart of the runtime: the socket is removed, connections end, and a new socket
// opens. Containers keep running.
func (r *Runtime) Restart(_ context.Context) error {
	r.life.Lock()
	defer r.life.Unlock()
	r.stopLocked()
	return r.startLocked()
}

// begin starts an operation. No plugin is synchronised during an operation, so that none misses a change. The returned
// function ends it.
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

// synchronize sends a plugin all pods and containers and applies its updates. The adaptation calls it while no
// operation runs.
func (r *Runtime) synchronize(ctx context.Context, tell adaptation.SyncCB) error {
	if r.starting.Load() {
		return nil // the call for plugins that the runtime launches; there are none
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

// Listed returns what a plugin gets by Synchronize.
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

// unsolicited applies unsolicited updates of a plugin and returns those that failed.
func (r *Runtime) unsolicited(_ context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	for r.o.memory != nil && !r.mu.TryLock() {
		travel() // in a bubble, time does not advance while a goroutine waits for a mutex
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
