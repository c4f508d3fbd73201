package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/containerd/nri/pkg/adaptation"
	"github.com/containerd/nri/pkg/api"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/cpumap"
	"github.com/trimtab/trimtab/internal/runtimes"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// container is a container of the runtime.
type container struct {
	ref                scenario.Ref
	id                 string
	number             int // the position in the order in which all pods and containers were created
	pod                *sandbox
	request            scenario.Container // the container as the creation requested it
	spec               *specs.Spec        // the stored spec, as plugins and later updates have changed it
	cdi                []string           // the names of the CDI devices
	blockIO            string             // the name of the block I/O class
	rdt                string             // the name of the RDT class
	dir                string             // the directory of the container's cgroup
	state              api.ContainerState
	atFirstInstruction FirstState
}

// FirstState is the state of a container when its process runs the first instruction.
type FirstState struct {
	effective.State
	// Others has the effective CPUs of all other running containers at that time. It is empty if Options.ManyContainers
	// is set, because reading the CPUs of many containers takes long.
	Others map[scenario.Ref]string
}

// Request is a request to create a container. Besides the container of a scenario, it has fields that only a CRI client
// can set.
type Request struct {
	scenario.Container
	Mounts      []specs.Mount
	Devices     []string          // paths of devices: HOST or HOST:CONTAINER
	Unified     map[string]string // texts for files of cgroup version 2, by file name
	OOMScoreAdj *int
}

// CreateContainer creates a container of a scenario in a running pod.
func (r *Runtime) CreateContainer(ctx context.Context, pod scenario.Ref, container scenario.Container) error {
	return r.Create(ctx, pod, Request{Container: container})
}

// Create creates a container in a running pod. Plugins can adjust the container. A container has no cgroup before its
// start.
func (r *Runtime) Create(ctx context.Context, pod scenario.Ref, request Request) error {
	nri, end, err := r.beginOperation()
	if err != nil {
		return err
	}
	defer end()
	ref := pod.In(request.Name)
	p := r.pods[pod]
	switch {
	case p == nil || p.stopped:
		return fmt.Errorf("create container %s: its pod is not running", ref)
	case r.containers[ref] != nil:
		return fmt.Errorf("create container %s: it already exists", ref)
	}
	r.createdObjects++
	c := &container{ref: ref, pod: p, number: r.createdObjects, request: request.Container, state: api.ContainerState_CONTAINER_CREATED}
	c.id = r.newID("container", string(ref), fmt.Sprint(c.number))
	c.spec, c.cdi = newSpec(c, r.cgroupsPath(p.dir, c.id)), slices.Clone(request.CDI)
	if err := request.addToSpec(c.spec, r.opts.Host); err != nil {
		return fmt.Errorf("create %s: %w", ref, err)
	}
	answer, err := nri.CreateContainer(ctx, &adaptation.CreateContainerRequest{Pod: p.nri(r), Container: c.nri()})
	if err != nil {
		r.observe(Event{Kind: "CreateContainer", Ref: ref, Err: err})
		return fmt.Errorf("create %s: %w", ref, err)
	}
	r.NotifySent(runtimes.NRI, runtimes.CreateCall, answer.GetAdjust().GetLinux().GetResources())
	r.notifySentUpdates(answer.GetUpdate(), "")
	if err = c.applyAdjustment(answer.GetAdjust()); err == nil {
		err = errors.Join(r.opts.Kind.createError(c.spec), r.checkCDIDevices(c.cdi))
	}
	if err == nil {
		c.dir, err = cgroup.Path("/"+p.dir, c.spec.Linux.CgroupsPath)
	}
	if err != nil {
		r.notifyFailedCreation(ctx, nri, c)
		r.observe(Event{Kind: "CreateContainer", Ref: ref, Adjust: answer.GetAdjust(), Err: err})
		return fmt.Errorf("create %s: %w", ref, err)
	}
	r.containers[ref] = c
	changes, failed := r.applyUpdates(answer.GetUpdate())
	if err := r.opts.Kind.failedUpdateError(failed); err != nil {
		delete(r.containers, ref)
		r.notifyFailedCreation(ctx, nri, c)
		return fmt.Errorf("create %s: %w", ref, err)
	}
	r.observe(Event{Kind: "CreateContainer", Ref: ref, Adjust: answer.GetAdjust(), Updates: changes})
	err = nri.PostCreateContainer(ctx, &adaptation.PostCreateContainerRequest{Pod: p.nri(r), Container: c.nri()})
	r.logPluginError(ctx, "PostCreateContainer", err)
	return nil
}

// checkCDIDevices returns an error that lists the CDI devices that the node lacks; nil if the node has all of them.
func (r *Runtime) checkCDIDevices(names []string) error {
	var unknown []string
	for _, name := range names {
		if r.opts.KnowsCDI != nil && !r.opts.KnowsCDI(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("CDI device injection failed: unresolvable CDI devices %s (node.cdi of the scenario lists the CDI devices that the node has)", strings.Join(unknown, ", "))
}

// notifyFailedCreation notifies plugins of the end of a container. It is called if the creation fails after plugins
// adjusted the container.
func (r *Runtime) notifyFailedCreation(ctx context.Context, nri *adaptation.Adaptation, c *container) {
	answer, err := nri.StopContainer(ctx, &adaptation.StopContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.applyUpdates(answer.GetUpdate())
	r.logPluginError(ctx, "StopContainer", err)
	err = nri.RemoveContainer(ctx, &adaptation.RemoveContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.logPluginError(ctx, "RemoveContainer", err)
}

// StartContainer makes the container's cgroup, calls the plugins, and stores the state at the first instruction.
func (r *Runtime) StartContainer(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.beginOperation()
	if err != nil {
		return err
	}
	defer end()
	c := r.containers[ref]
	if c == nil || c.state != api.ContainerState_CONTAINER_CREATED {
		return fmt.Errorf("start %s: no container with this name has the state CREATED", ref)
	}
	if err := r.makeContainer(c.dir, c.spec.Linux.Resources); err != nil {
		return fmt.Errorf("start %s: %w", ref, err)
	}
	if err := r.moveLinks(c); err != nil {
		c.state = api.ContainerState_CONTAINER_STOPPED
		return errors.Join(fmt.Errorf("start %s: %w", ref, err), r.removeCgroup(c.dir))
	}
	err = nri.StartContainer(ctx, &adaptation.StartContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.observe(Event{Kind: "StartContainer", Ref: ref, Err: err})
	if err != nil {
		c.state = api.ContainerState_CONTAINER_STOPPED
		return errors.Join(fmt.Errorf("start %s: %w", ref, err), r.removeCgroup(c.dir))
	}
	c.state = api.ContainerState_CONTAINER_RUNNING
	if c.atFirstInstruction, err = r.firstInstruction(c); err != nil {
		return fmt.Errorf("read the state of container %s at its first instruction: %w", ref, err)
	}
	err = nri.PostStartContainer(ctx, &adaptation.PostStartContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.logPluginError(ctx, "PostStartContainer", err)
	return nil
}

// moveLinks moves the network interfaces of a container into its pod's network namespace, as an OCI runtime does.
func (r *Runtime) moveLinks(c *container) error {
	if r.opts.Links == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.spec.Linux.NetDevices)) {
		if err := r.opts.Links.Move(name, c.pod.id); err != nil {
			return err
		}
	}
	return nil
}

// firstInstruction reads the state that the container's first instruction sees.
func (r *Runtime) firstInstruction(c *container) (FirstState, error) {
	state, err := effective.ReadCgroup(r.opts.Kernel, r.isV2(), c.dir)
	f := FirstState{State: state.WithSpec(c.spec), Others: map[scenario.Ref]string{}}
	f.CDI, f.BlockIO, f.RDTClass, f.RDTGroup = c.cdi, c.blockIO, c.rdt, r.rdtGroup(c.dir)
	f.Cookie, f.Process = r.cookie(c.dir), r.processAttributes(c.dir, f.Process)
	for _, o := range r.containers {
		if o == c || r.opts.ManyContainers || o.state != api.ContainerState_CONTAINER_RUNNING {
			continue
		}
		other, e := effective.ReadCgroup(r.opts.Kernel, r.isV2(), o.dir)
		err = errors.Join(err, e)
		f.Others[o.ref] = other.CPUs
	}
	return f, err
}

// StopContainer stops the container and removes its cgroup.
func (r *Runtime) StopContainer(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.beginOperation()
	if err != nil {
		return err
	}
	defer end()
	c := r.containers[ref]
	if c == nil {
		return fmt.Errorf("stop %s: the container does not exist", ref)
	}
	return r.stop(ctx, nri, c)
}

// stop stops a container that is not stopped yet. It removes the cgroup of a running container and notifies plugins.
func (r *Runtime) stop(ctx context.Context, nri *adaptation.Adaptation, c *container) error {
	if c.state == api.ContainerState_CONTAINER_STOPPED {
		return nil
	}
	var removeErr error
	if c.state == api.ContainerState_CONTAINER_RUNNING {
		removeErr = r.removeCgroup(c.dir)
	}
	c.state = api.ContainerState_CONTAINER_STOPPED
	answer, err := nri.StopContainer(ctx, &adaptation.StopContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	changes, _ := r.applyUpdates(answer.GetUpdate())
	r.observe(Event{Kind: "StopContainer", Ref: c.ref, Updates: changes, Err: err})
	r.logPluginError(ctx, "StopContainer", err)
	return removeErr
}

// RemoveContainer stops the container if it runs, and removes it.
func (r *Runtime) RemoveContainer(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.beginOperation()
	if err != nil {
		return err
	}
	defer end()
	c := r.containers[ref]
	if c == nil {
		return fmt.Errorf("remove %s: the container does not exist", ref)
	}
	err = r.stop(ctx, nri, c)
	r.removeStopped(ctx, nri, c)
	return err
}

// removeStopped removes a stopped container and notifies plugins.
func (r *Runtime) removeStopped(ctx context.Context, nri *adaptation.Adaptation, c *container) {
	err := nri.RemoveContainer(ctx, &adaptation.RemoveContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.observe(Event{Kind: "RemoveContainer", Ref: c.ref, Err: err})
	r.logPluginError(ctx, "RemoveContainer", err)
	delete(r.containers, c.ref)
}

// ContainerInfo describes a container.
type ContainerInfo struct {
	Ref     scenario.Ref
	ID      string
	State   string             // created, running or stopped
	Request scenario.Container // the container as the creation requested it
	Pod     string             // the id of the container's pod
	PID     uint32             // an invented process id; 0 if the container is not running
	CDI     []string           // the names of the CDI devices
	// Number is the position in the order in which all pods and containers were created.
	Number int
}

// Containers returns all containers, oldest first.
func (r *Runtime) Containers() []ContainerInfo {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []ContainerInfo
	for _, c := range r.sortedContainers() {
		all = append(all, c.info())
	}
	return all
}

// info describes the container for callers outside of this package.
func (c *container) info() ContainerInfo {
	i := ContainerInfo{Ref: c.ref, ID: c.id, State: stateName(c.state), Request: c.request, Pod: c.pod.id, CDI: c.cdi, Number: c.number}
	if c.state == api.ContainerState_CONTAINER_RUNNING {
		i.PID = uint32(2000 + c.number)
	}
	return i
}

// ViewContainer finds a container by its id. It calls the function view with the container and its spec, while it holds
// the runtime's lock. It returns false if there is no such container.
func (r *Runtime) ViewContainer(id string, view func(ContainerInfo, *specs.Spec)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.byID(id)
	if c == nil {
		return false
	}
	view(c.info(), c.spec)
	return true
}

// State returns the effective state of a container. For a running container, it reads the state from the simulated
// kernel and the stored spec. For other containers, it reads the state from the stored spec only.
func (r *Runtime) State(ref scenario.Ref) (effective.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[ref]
	if c == nil {
		return effective.State{}, fmt.Errorf("container %s does not exist", ref)
	}
	if c.state != api.ContainerState_CONTAINER_RUNNING {
		s := effective.PlannedState(c.spec, r.isV2())
		s.CDI, s.BlockIO, s.RDTClass = c.cdi, c.blockIO, c.rdt
		return s, nil
	}
	s, err := effective.ReadCgroup(r.opts.Kernel, r.isV2(), c.dir)
	s = s.WithSpec(c.spec)
	s.CDI, s.BlockIO, s.RDTClass, s.RDTGroup = c.cdi, c.blockIO, c.rdt, r.rdtGroup(c.dir)
	s.Cookie, s.Process = r.cookie(c.dir), r.processAttributes(c.dir, s.Process)
	return s, err
}

// usedCPUs returns the CPUs that each running container may use.
func (r *Runtime) usedCPUs() []cpumap.ContainerCPUs {
	var used []cpumap.ContainerCPUs
	for _, c := range r.Containers() {
		if c.State != "running" {
			continue
		}
		if s, err := r.State(c.Ref); err == nil {
			used = append(used, cpumap.ContainerCPUs{Pod: string(c.Ref.Pod()), CPUs: s.CPUs})
		}
	}
	return used
}

// FirstInstruction returns the state at the container's first instruction; false if the container has not started.
func (r *Runtime) FirstInstruction(ref scenario.Ref) (FirstState, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[ref]
	if c == nil || c.atFirstInstruction.Others == nil {
		return FirstState{}, false
	}
	return c.atFirstInstruction, true
}

// Spec returns a container's stored OCI spec. It is not a copy; callers must not change it.
func (r *Runtime) Spec(ref scenario.Ref) (*specs.Spec, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[ref]
	if c == nil {
		return nil, false
	}
	return c.spec, true
}

// sortedContainers returns all containers, oldest first.
func (r *Runtime) sortedContainers() []*container {
	return slices.SortedFunc(maps.Values(r.containers), func(a, b *container) int { return a.number - b.number })
}

// stateName returns the name of a state in ContainerInfo.State.
func stateName(s api.ContainerState) string {
	switch s {
	case api.ContainerState_CONTAINER_CREATED:
		return "created"
	case api.ContainerState_CONTAINER_RUNNING:
		return "running"
	case api.ContainerState_CONTAINER_STOPPED:
		return "stopped"
	}
	return "unknown"
}
