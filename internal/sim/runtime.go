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

// Driver is the cgroup driver of the kubelet and the runtime. It determines the names of cgroups.
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
	Resctrl   *kernel.Resctrl   // nil if the machine has no resctrl
	Cookies   *kernel.Cookies   // core scheduling; nil if the kernel has no core scheduling
	Processes *kernel.Processes // nil if no agent sets attributes of processes
	Links     *kernel.Links     // nil if the host's network interfaces are unknown
	Host      *lifecycle.Host   // has the device nodes that containers can request; nil for none
	Driver    Driver
	Socket    string // the path of the socket to which plugins connect
	// KnowsCDI reports whether the runtime can inject a CDI device. The runtime refuses containers with other CDI
	// devices. If it is nil, the runtime accepts all devices.
	KnowsCDI func(name string) bool
	// ManyContainers makes the runtime leave out FirstState.Others, because reading the CPUs of a thousand containers
	// at each start takes long.
	ManyContainers bool
	Log            *slog.Logger
	Kind           Kind   // the runtime whose behaviour the embedded runtime imitates
	Seed           string // the ids of pods and containers are hashes of the seed, and of their names and numbers
	// Observe is called with every NRI event after the plugins have answered, while the runtime waits. It must not call
	// the runtime. It may be nil.
	Observe func(Event)
	// ResourcesSent is called with all resources that plugins send over NRI and clients send over the CRI. It may be
	// nil.
	ResourcesSent func(SentUpdate)

	pipes *pipeNetwork // the network in which plugins connect to Socket; nil for a real socket
}

// Event is one NRI event with the answer of the plugins.
type Event struct {
	Kind    string                   // the name of the event in NRI
	Ref     scenario.Ref             // the pod or container of the event
	Adjust  *api.ContainerAdjustment // the plugins' changes of the container that is created
	Updates []Change                 // the plugins' updates of containers
	Err     error                    // the event failed in a plugin or in the runtime
}

// Change is an update of one container. It is an update by a plugin, or the kubelet's update after plugins changed it.
type Change struct {
	Ref       scenario.Ref
	Resources *api.LinuxResources
	Err       error // the runtime could not apply the update
}

// Runtime is the embedded runtime. Its methods are safe for concurrent use. Like containerd, it does one operation at a
// time. So a plugin must not send an unsolicited update while it handles an event: the update would wait forever.
type Runtime struct {
	opts Options

	// serverMutex is held for reading by every operation, and for writing while the NRI server starts or stops. Locks
	// are taken in this order: serverMutex, the adaptation's BlockPluginSync, mu, the adaptation's internal locks.
	serverMutex sync.RWMutex
	nri         *adaptation.Adaptation // NRI's server; nil while the runtime is stopped
	relay       *relay                 // listens at Options.Socket; nil in a pipe network
	innerDir    string                 // the directory of the socket to which the relay forwards connections

	starting atomic.Bool // the NRI server starts, so no plugin is connected yet

	syncCount syncCounter // number of synchronisations so far

	mu             sync.Mutex // guards the fields below
	pods           map[scenario.Ref]*sandbox
	containers     map[scenario.Ref]*container
	createdObjects int // the number of pods and containers created so far, from which creation times are made
}

// errNotRunning is the error of an operation while the runtime is stopped.
var errNotRunning = errors.New("the embedded runtime is not running")

// NewRuntime makes a runtime. It also makes the cgroups of the QoS classes, which a kubelet makes on a real node. The
// runtime listens after Start.
func NewRuntime(o Options) (*Runtime, error) {
	switch {
	case o.Machine == nil || o.Kernel == nil:
		return nil, errors.New("embedded runtime: the options have no machine or no kernel")
	case o.Version != cgroup.V1 && o.Version != cgroup.V2:
		return nil, fmt.Errorf("embedded runtime: cgroup version %d is neither 1 nor 2", o.Version)
	case o.Driver != Cgroupfs && o.Driver != Systemd:
		return nil, fmt.Errorf("embedded runtime: cgroup driver %q is neither cgroupfs nor systemd", o.Driver)
	case o.Socket == "":
		return nil, errors.New("embedded runtime: the options have no socket")
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	r := &Runtime{opts: o, pods: map[scenario.Ref]*sandbox{}, containers: map[scenario.Ref]*container{}}
	for _, qos := range []string{"Burstable", "BestEffort"} {
		if err := r.opts.Kernel.MkdirRunc(r.qosDir(qos)); err != nil {
			return nil, fmt.Errorf("make the embedded runtime: %w", err)
		}
	}
	return r, nil
}

// Start opens the NRI socket.
func (r *Runtime) Start(_ context.Context) error {
	r.serverMutex.Lock()
	defer r.serverMutex.Unlock()
	if r.nri != nil {
		return errors.New("the embedded runtime is already running")
	}
	return r.startLocked()
}

// startLocked opens the NRI socket. The caller holds serverMutex.
func (r *Runtime) startLocked() error {
	if r.opts.pipes != nil {
		return r.startInMemory()
	}
	inner, err := os.MkdirTemp("", "trimtab-sim-")
	if err != nil {
		return fmt.Errorf("start the embedded runtime: %w", err)
	}
	socket := filepath.Join(inner, "nri")
	name, version := r.opts.Kind.nriNameAndVersion()
	nri, err := adaptation.New(name, version, r.synchronize, r.applyUnsolicited,
		adaptation.WithSocketPath(socket),
		adaptation.WithPluginPath(filepath.Join(inner, "plugins")),
		adaptation.WithPluginConfigPath(filepath.Join(inner, "conf.d")))
	if err == nil {
		r.starting.Store(true)
		err = nri.Start()
		r.starting.Store(false)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("start the embedded runtime: %w", err), os.RemoveAll(inner))
	}
	outer, err := listen(r.opts.Socket, socket)
	if err != nil {
		nri.Stop()
		return errors.Join(fmt.Errorf("start the embedded runtime: %w", err), os.RemoveAll(inner))
	}
	r.nri, r.relay, r.innerDir = nri, outer, inner
	return nil
}

// Stop closes the socket and every plugin's connection. Containers keep running.
func (r *Runtime) Stop() {
	r.serverMutex.Lock()
	defer r.serverMutex.Unlock()
	r.stopLocked()
}

// stopLocked closes the NRI socket and every plugin's connection. The caller holds serverMutex.
func (r *Runtime) stopLocked() {
	if r.nri == nil {
		return
	}
	if r.opts.pipes != nil {
		r.opts.pipes.stopServing(r.opts.Socket)
		r.nri.Stop()
		r.nri = nil
		return
	}
	r.relay.close()
	r.nri.Stop()
	if err := os.RemoveAll(r.innerDir); err != nil {
		r.opts.Log.Warn("the runtime cannot remove the directory of its inner socket", "err", err)
	}
	r.nri = nil
}

// Restart simulates a restart of the runtime for plugins: it closes their connections and the socket, and opens the
// socket again. Containers keep running.
func (r *Runtime) Restart(_ context.Context) error {
	r.serverMutex.Lock()
	defer r.serverMutex.Unlock()
	r.stopLocked()
	return r.startLocked()
}

// beginOperation begins an operation and takes the locks for it. The returned function ends the operation. During an
// operation no plugin is synchronised, so that no plugin misses a change.
func (r *Runtime) beginOperation() (*adaptation.Adaptation, func(), error) {
	r.serverMutex.RLock()
	if r.nri == nil {
		r.serverMutex.RUnlock()
		return nil, nil, errNotRunning
	}
	block := r.nri.BlockPluginSync()
	r.mu.Lock()
	return r.nri, func() {
		r.mu.Unlock()
		block.Unblock()
		r.serverMutex.RUnlock()
	}, nil
}

// observe calls Options.Observe with an event, if it is not nil.
func (r *Runtime) observe(e Event) {
	if r.opts.Observe != nil {
		r.opts.Observe(e)
	}
}

// synchronize sends all pods and containers to a plugin and applies the updates in the plugin's answer. The adaptation
// calls it while no operation runs.
func (r *Runtime) synchronize(ctx context.Context, syncPlugin adaptation.SyncCB) error {
	if r.starting.Load() {
		return nil // at its start, the NRI library calls this for the plugins that it launched, here for none
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pods, containers := r.listedLocked()
	updates, err := syncPlugin(ctx, pods, containers)
	if err != nil {
		r.observe(Event{Kind: "Synchronize", Err: err})
		return err
	}
	changes, _ := r.applyUpdates(updates)
	r.observe(Event{Kind: "Synchronize", Updates: changes})
	r.syncCount.increment()
	return nil
}

// ListForSynchronize returns the pods and containers that a plugin gets in Synchronize.
func (r *Runtime) ListForSynchronize() ([]*api.PodSandbox, []*api.Container) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.listedLocked()
}

// listedLocked returns the pods, and the containers that are not stopped. The caller holds mu.
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

// applyUnsolicited applies unsolicited updates of a plugin and returns the failed updates.
func (r *Runtime) applyUnsolicited(_ context.Context, updates []*api.ContainerUpdate) ([]*api.ContainerUpdate, error) {
	for r.opts.pipes != nil && !r.mu.TryLock() {
		waitDelay() // in a bubble, time does not advance while a goroutine waits for a mutex
	}
	if r.opts.pipes == nil {
		r.mu.Lock()
	}
	defer r.mu.Unlock()
	r.notifySentUpdates(updates, "")
	changes, failed := r.applyUpdates(updates)
	r.observe(Event{Kind: "UpdateContainers", Updates: changes})
	return failed, nil
}
