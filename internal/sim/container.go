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
	ref     scenario.Ref
	id      string
	number  int
	pod     *sandbox
	request scenario.Container
	spec    *specs.Spec
	cdi     []string
	blockIO string // block I/O class
	rdt     string // RDT class
	dir     string // directory of its cgroup
	state   api.ContainerState
	first   First
}

// First is the state of a container when its process runs the first instruction.
type First struct {
	effective.State
	// Others has the effective CPUs of all other running containers at that time. It is empty with
	// Options.ManyContainers.
	Others map[scenario.Ref]string
}

// Request is a request for a container. It has additional fields that a CRI client can set and a scenario cannot.
type Request struct {
	scenario.Container
	Mounts      []specs.Mount
	Devices     []string // paths on the host
	Unified     map[string]string
	OOMScoreAdj *int
}

// CreateContainer creates a container of a scenario in a running pod.
func (r *Runtime) CreateContainer(ctx context.Context, pod scenario.Ref, asked scenario.Container) error {
	return r.Create(ctx, pod, Request{Container: asked})
}

// Create creates a container in a running pod. Plugins can adjust the container. It has no cgroup before it starts.
func (r *Runtime) Create(ctx context.Context, pod scenario.Ref, request Request) error {
	asked := request.Container
	nri, end, err := r.begin()
	if err != nil {
		return err
	}
	defer end()
	ref := pod.In(asked.Name)
	p := r.pods[pod]
	switch {
	case p == nil || p.stopped:
		return fmt.Errorf("create container %s: its pod is not running", ref)
	case r.containers[ref] != nil:
		return fmt.Errorf("create container %s: it already exists", ref)
	}
	r.created++
	c := &container{ref: ref, pod: p, number: r.created, request: asked, state: api.ContainerState_CONTAINER_CREATED}
	c.id = r.id("container", string(ref), fmt.Sprint(c.number))
	c.spec, c.cdi = newSpec(c, r.cgroupsPath(p.dir, c.id)), slices.Clone(request.CDI)
	if err := request.addToSpec(c.spec, r.o.Host); err != nil {
		return fmt.Errorf("create %s: %w", ref, err)
	}
	answer, err := nri.CreateContainer(ctx, &adaptation.CreateContainerRequest{Pod: p.nri(r), Container: c.nri()})
	if err != nil {
		r.observe(Event{Kind: "CreateContainer", Ref: ref, Err: err})
		return fmt.Errorf("create %s: %w", ref, err)
	}
	r.NotifySent(runtimes.NRI, runtimes.CreateCall, answer.GetAdjust().GetLinux().GetResources())
	r.notifySentUpdates(answer.GetUpdate(), "")
	if err = c.adjust(answer.GetAdjust()); err == nil {
		err = errors.Join(r.o.Kind.createError(c.spec), r.resolve(c.cdi))
	}
	if err == nil {
		c.dir, err = cgroup.Path("/"+p.dir, c.spec.Linux.CgroupsPath)
	}
	if err != nil {
		r.undo(ctx, nri, c)
		r.observe(Event{Kind: "CreateContainer", Ref: ref, Adjust: answer.GetAdjust(), Err: err})
		return fmt.Errorf("create %s: %w", ref, err)
	}
	r.containers[ref] = c
	changes, failed := r.applyUpdates(answer.GetUpdate())
	if err := r.o.Kind.failedUpdateError(failed); err != nil {
		delete(r.containers, ref)
		r.undo(ctx, nri, c)
		return fmt.Errorf("create %s: %w", ref, err)
	}
	r.observe(Event{Kind: "CreateContainer", Ref: ref, Adjust: answer.GetAdjust(), Updates: changes})
	err = nri.PostCreateContainer(ctx, &adaptation.PostCreateContainerRequest{Pod: p.nri(r), Container: c.nri()})
	r.logOnly(ctx, "PostCreateContainer", err)
	return nil
}

// resolve returns an error if the node lacks CDI devices, which the error names.
func (r *Runtime) resolve(names []string) error {
	var unknown []string
	for _, name := range names {
		if r.o.KnowsCDI != nil && !r.o.KnowsCDI(name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	return fmt.Errorf("CDI device injection failed: unresolvable CDI devices %s (node.cdi of the scenario lists those that the node has)", strings.Join(unknown, ", "))
}

// undo notifies plugins of the end of a container whose creation failed after they had adjusted it.
func (r *Runtime) undo(ctx context.Context, nri *adaptation.Adaptation, c *container) {
	answer, err := nri.StopContainer(ctx, &adaptation.StopContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.applyUpdates(answer.GetUpdate())
	r.logOnly(ctx, "StopContainer", err)
	err = nri.RemoveContainer(ctx, &adaptation.RemoveContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.logOnly(ctx, "RemoveContainer", err)
}

// StartContainer makes the container's cgroup, calls the plugins, and stores the state at the first instruction.
func (r *Runtime) StartContainer(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.begin()
	if err != nil {
		return err
	}
	defer end()
	c := r.containers[ref]
	if c == nil || c.state != api.ContainerState_CONTAINER_CREATED {
		return fmt.Errorf("start %s: there is no such container in the state created", ref)
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
	if c.first, err = r.firstInstruction(c); err != nil {
		return fmt.Errorf("first instruction of %s: %w", ref, err)
	}
	err = nri.PostStartContainer(ctx, &adaptation.PostStartContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.logOnly(ctx, "PostStartContainer", err)
	return nil
}

// moveLinks moves the network interfaces of a container into its pod's network namespace, like an OCI runtime.
func (r *Runtime) moveLinks(c *container) error {
	if r.o.Links == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(c.spec.Linux.NetDevices)) {
		if err := r.o.Links.Move(name, c.pod.id); err != nil {
			return err
		}
	}
	return nil
}

// firstInstruction reads the state that the container's first instruction sees.
func (r *Runtime) firstInstruction(c *container) (First, error) {
	state, err := effective.Cgroup(r.o.Kernel, r.v2(), c.dir)
	f := First{State: state.Spec(c.spec), Others: map[scenario.Ref]string{}}
	f.CDI, f.BlockIO, f.RDTClass, f.RDTGroup = c.cdi, c.blockIO, c.rdt, r.rdtGroup(c.dir)
	f.Cookie, f.Process = r.cookie(c.dir), r.attributes(c.dir, f.Process)
	for _, o := range r.containers {
		if o == c || r.o.ManyContainers || o.state != api.ContainerState_CONTAINER_RUNNING {
			continue
		}
		other, e := effective.Cgroup(r.o.Kernel, r.v2(), o.dir)
		err = errors.Join(err, e)
		f.Others[o.ref] = other.CPUs
	}
	return f, err
}

// StopContainer stops the container and removes its cgroup.
func (r *Runtime) StopContainer(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.begin()
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

func (r *Runtime) stop(ctx context.Context, nri *adaptation.Adaptation, c *container) error {
	if c.state == api.ContainerState_CONTAINER_STOPPED {
		return nil
	}
	var gone error
	if c.state == api.ContainerState_CONTAINER_RUNNING {
		gone = r.removeCgroup(c.dir)
	}
	c.state = api.ContainerState_CONTAINER_STOPPED
	answer, err := nri.StopContainer(ctx, &adaptation.StopContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	changes, _ := r.applyUpdates(answer.GetUpdate())
	r.observe(Event{Kind: "StopContainer", Ref: c.ref, Updates: changes, Err: err})
	r.logOnly(ctx, "StopContainer", err)
	return gone
}

// RemoveContainer stops the container if it runs, and removes it.
func (r *Runtime) RemoveContainer(ctx context.Context, ref scenario.Ref) error {
	nri, end, err := r.begin()
	if err != nil {
		return err
	}
	defer end()
	c := r.containers[ref]
	if c == nil {
		return fmt.Errorf("remove %s: the container does not exist", ref)
	}
	err = r.stop(ctx, nri, c)
	r.remove(ctx, nri, c)
	return err
}

func (r *Runtime) remove(ctx context.Context, nri *adaptation.Adaptation, c *container) {
	err := nri.RemoveContainer(ctx, &adaptation.RemoveContainerRequest{Pod: c.pod.nri(r), Container: c.nri()})
	r.observe(Event{Kind: "RemoveContainer", Ref: c.ref, Err: err})
	r.logOnly(ctx, "RemoveContainer", err)
	delete(r.containers, c.ref)
}

// Info describes a container.
type Info struct {
	Ref   scenario.Ref
	ID    string
	State string // created, running or stopped
	Asked scenario.Container
	Pod   string // the id of its pod
	PID   uint32 // 0 if it is not running
	CDI   []string
	// Number is the position in the order in which all pods and containers were created.
	Number int
}

// Containers returns all containers, oldest first.
func (r *Runtime) Containers() []Info {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Info
	for _, c := range r.sortedContainers() {
		all = append(all, c.info())
	}
	return all
}

func (c *container) info() Info {
	i := Info{Ref: c.ref, ID: c.id, State: stateName(c.state), Asked: c.request, Pod: c.pod.id, CDI: c.cdi, Number: c.number}
	if c.state == api.ContainerState_CONTAINER_RUNNING {
		i.PID = uint32(2000 + c.number)
	}
	return i
}

// View calls see with the container of an id and its spec, while it holds the lock. It returns false if there is no
// such container.
func (r *Runtime) View(id string, see func(Info, *specs.Spec)) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.byID(id)
	if c == nil {
		return false
	}
	see(c.info(), c.spec)
	return true
}

// State returns the effective state of a container. It reads the state of a running container from the kernel and its
// spec, and the state of any other container from its spec.
func (r *Runtime) State(ref scenario.Ref) (effective.State, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[ref]
	if c == nil {
		return effective.State{}, fmt.Errorf("container %s does not exist", ref)
	}
	if c.state != api.ContainerState_CONTAINER_RUNNING {
		s := effective.Planned(c.spec, r.v2())
		s.CDI, s.BlockIO, s.RDTClass = c.cdi, c.blockIO, c.rdt
		return s, nil
	}
	s, err := effective.Cgroup(r.o.Kernel, r.v2(), c.dir)
	s = s.Spec(c.spec)
	s.CDI, s.BlockIO, s.RDTClass, s.RDTGroup = c.cdi, c.blockIO, c.rdt, r.rdtGroup(c.dir)
	s.Cookie, s.Process = r.cookie(c.dir), r.attributes(c.dir, s.Process)
	return s, err
}

// used returns the CPUs that each running container may use.
func (r *Runtime) used() []cpumap.Use {
	var used []cpumap.Use
	for _, c := range r.Containers() {
		if c.State != "running" {
			continue
		}
		if s, err := r.State(c.Ref); err == nil {
			used = append(used, cpumap.Use{Pod: string(c.Ref.Pod()), CPUs: s.CPUs})
		}
	}
	return used
}

// FirstInstruction returns the state at the container's first instruction; false if it has not started.
func (r *Runtime) FirstInstruction(ref scenario.Ref) (First, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := r.containers[ref]
	if c == nil || c.first.Others == nil {
		return First{}, false
	}
	return c.first, true
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

func (r *Runtime) sortedContainers() []*container {
	return slices.SortedFunc(maps.Values(r.containers), func(a, b *container) int { return a.number - b.number })
}

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
