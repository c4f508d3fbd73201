package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	kjson "sigs.k8s.io/json"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/dra"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/podspec"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/effective"
	"github.com/trimtab/trimtab/internal/sim/kernel"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

// Decision is the engine's decision for a container or pod: its values, and the effective state that follows from them.
type Decision struct {
	Values  map[string]string          // the text of each value, by field and key
	Fields  map[string]lifecycle.Field // the field of each value, by field and key
	Initial map[string]string          // the values with which the container was created
	State   effective.State            // the effective state that the container or pod must have
	Running bool                       // the container runs
	Group   string                     // the core scheduling group; the kernel chooses the group's cookie
}

// Outcome has the decisions for every container and pod after a step.
type Outcome struct {
	Containers, Pods map[scenario.Ref]Decision
	// Refused has the pods that have a container which a policy refused, in this step or in an earlier step.
	Refused map[scenario.Ref]bool
}

// Engine plays a scenario through the engine alone: it calls Decide for each event and computes the effective state
// from requests and decisions. It has no conductor, keeper, kernel, attachment or runtime.
type Engine struct {
	s               *scenario.Scenario
	node            sim.AgentOptions // the simulated node of the scenario, as an agent's options describe it
	names           *sim.Runtime     // makes the UIDs and cgroup directories of pods; runs no container
	state           *engine.State
	isCgroupV2      bool // the node has cgroup version 2
	pods            map[scenario.Ref]*pod
	ctrs            map[scenario.Ref]*ctr
	links           *kernel.Links         // nil if the scenario does not name the host's network interfaces
	movesInterfaces bool                  // containers get the network interfaces that the engine decides
	createdCount    int                   // the number of pods and containers created so far, for new ids
	kubeletStopped  bool                  // the kubelet reports no pod specs and grants
	refused         map[scenario.Ref]bool // the pods that have a container which a policy refused
	claims          []scenario.Claim
	granter         *dra.Source // gives containers the CPUs of their resource claims
}

// pod is a pod of the scenario.
type pod struct {
	reported       *lifecycle.Pod     // the pod in the form in which an attachment reports it
	requested      scenario.Resources // the resources of the pod's own cgroup
	scenarioPod    scenario.Pod
	spec           *lifecycle.PodSpec // the spec that the kubelet reports unless it is stopped
	specReported   bool               // the kubelet has reported spec
	kubeletGrants  *lifecycle.KubeletGrants
	grantsReported bool // the kubelet has reported kubeletGrants
}

// ctr is a container of the scenario.
type ctr struct {
	reported  *lifecycle.Container // the container in the form in which an attachment reports it
	requested scenario.Container
	initial   []lifecycle.Value // the values with which the container was created
}

// NewEngine returns an Engine for a scenario.
func NewEngine(s *scenario.Scenario) (*Engine, error) {
	node, err := sim.AgentOptionsFor(s)
	if err != nil {
		return nil, err
	}
	e := &Engine{
		s: s, node: node, isCgroupV2: node.Tree.Version == cgroup.V2,
		pods: map[scenario.Ref]*pod{}, ctrs: map[scenario.Ref]*ctr{}, refused: map[scenario.Ref]bool{},
	}
	e.granter = dra.New(dra.Options{
		Devices: func() (map[string][]string, []string) { return scenario.ClaimVariables(e.claims), nil },
		Read: func(string) ([]byte, error) {
			return scenario.ClaimCheckpoint(e.claims, func(ref scenario.Ref) string { return e.names.UID(ref) }), nil
		},
		Checkpoint: "dra_manager_state",
	})
	if s.Node.Interfaces != nil {
		e.links = kernel.NewLinks(s.Node.Interfaces)
	}
	e.names, err = sim.NewRuntime(sim.Options{
		Machine: node.Machine, Kernel: node.Tree.FS.(*kernel.Cgroups), Version: node.Tree.Version,
		Driver: sim.Driver(s.Node.Driver), Socket: "none", Seed: s.Name,
	})
	if err != nil {
		return nil, err
	}
	policy, err := e.policy(s.Config)
	if err != nil {
		return nil, err
	}
	e.state = engine.NewState(node.Machine, policy)
	return e, nil
}

// policy returns the policy for a configuration of the scenario, in JSON.
func (e *Engine) policy(document json.RawMessage) (engine.Policy, error) {
	c := config.Default()
	if len(document) > 0 {
		strict, err := kjson.UnmarshalStrict(document, &c)
		if err := errors.Join(append([]error{err}, strict...)...); err != nil {
			return engine.Policy{}, err
		}
	}
	o := e.node
	return agent.Policy(agent.Options{Config: c, Machine: o.Machine, Tree: o.Tree, Host: o.Host, Resctrl: o.Resctrl, Cookies: o.Cookies, Processes: o.Processes})
}

// Play plays all steps and returns the outcome of each.
func (e *Engine) Play() ([]Outcome, error) {
	var all []Outcome
	for i := range e.s.Steps {
		step := &e.s.Steps[i]
		rejected, err := e.step(step)
		switch {
		case err != nil:
			return nil, fmt.Errorf("step %d, %s: %w", i+1, step.Name, err)
		case rejected != "" && step.Rejected == "", step.Rejected != "" && !strings.Contains(rejected, step.Rejected):
			return nil, fmt.Errorf("step %d, %s: the engine rejected the step with %q, want %q", i+1, step.Name, rejected, step.Rejected)
		}
		all = append(all, e.outcome())
	}
	return all, nil
}

// decide passes one event to the engine, with the facts that the kubelet and the claims add. It returns the reason if a
// policy rejects the event, or "".
func (e *Engine) decide(ev lifecycle.Event, f engine.Facts) string {
	if ev.Pod != nil {
		if p := e.podOf(ev.Pod.UID); p != nil && (p.specReported || !e.kubeletStopped) && p.spec != nil {
			f.Specs, p.specReported = map[string]*lifecycle.PodSpec{ev.Pod.UID: p.spec}, true
		}
		if p := e.podOf(ev.Pod.UID); p != nil && (p.grantsReported || !e.kubeletStopped) && p.kubeletGrants != nil {
			f.Granted, p.grantsReported = map[string]*lifecycle.KubeletGrants{ev.Pod.UID: p.kubeletGrants}, true
		}
	}
	if ev.Pod != nil {
		e.granter.ReadCheckpoint()
		if named := e.granter.ClassDevices(ev.Pod.UID); len(named) > 0 {
			with := *ev.Pod
			with.Claimed, ev.Pod = named, &with
		}
	}
	if ev.Container != nil && e.granter.MayGiveCPUs(ev.Container) {
		e.granter.Refresh(context.Background(), nil)
		f.Claims = map[string]*lifecycle.ClaimGrant{ev.Container.ID: e.granter.ForContainer(ev.Pod.UID, ev.Container)}
	}
	plan := engine.Decide(e.state, &ev, f)
	e.state.Commit(plan)
	return plan.Reject
}

// podOf returns the pod with a UID; nil if the scenario has no such pod now.
func (e *Engine) podOf(uid string) *pod {
	for _, p := range e.pods {
		if p.reported.UID == uid {
			return p
		}
	}
	return nil
}

// step plays one step. It ignores restarts of the agent and of the runtime, because they do not change decisions.
func (e *Engine) step(s *scenario.Step) (rejected string, err error) {
	if s.Claims != nil {
		e.claims = *s.Claims
	}
	for i := range s.Run {
		if rejected, err = e.run(&s.Run[i]); rejected != "" || err != nil {
			return rejected, err
		}
	}
	switch {
	case s.Create != nil:
		return e.create(s.Create.Pod, s.Create.Container), nil
	case s.Start != "":
		e.start(s.Start)
	case s.Update != nil:
		e.update(s.Update)
	case len(s.Reconfigure) > 0:
		policy, err := e.policy(s.Reconfigure)
		if err != nil {
			return "", err
		}
		e.decide(lifecycle.Event{Kind: lifecycle.Configure}, engine.Facts{Policy: &policy})
	case s.Kubelet != "":
		e.setKubeletStopped(s.Kubelet == "away")
	case s.Annotate != nil:
		return "", e.annotate(s.Annotate)
	}
	for _, ref := range s.Stop {
		e.end(ref, false)
	}
	for _, ref := range s.Remove {
		e.end(ref, true)
	}
	return "", nil
}

// run creates a pod, and creates and starts its containers.
func (e *Engine) run(r *scenario.Run) (rejected string, err error) {
	ref := scenario.PodRef(r.Pod.Namespace, r.Pod.Name)
	requested := sim.SumResources(r.Pod.QoS, r.Containers)
	if r.Pod.Resources != nil {
		requested = *r.Pod.Resources
	}
	e.createdCount++
	uid := cmp.Or(r.Pod.UID, e.names.UID(ref))
	resources := resourcesOf(requested)
	p := &pod{requested: requested, reported: &lifecycle.Pod{
		ID: "sandbox-" + strconv.Itoa(e.createdCount), Name: r.Pod.Name, Namespace: r.Pod.Namespace, UID: uid, Labels: r.Pod.Labels, Annotations: r.Pod.Annotations,
		RuntimeHandler: r.Pod.Handler, CgroupParent: "/" + e.names.PodDir(r.Pod.QoS, uid), Resources: &resources,
	}}
	if p.scenarioPod = r.Pod; len(r.Pod.Spec) > 0 {
		if p.spec, err = p.specOf(); err != nil {
			return "", err
		}
	}
	if r.Pod.PodResources != nil {
		p.kubeletGrants = &lifecycle.KubeletGrants{UID: uid, Namespace: r.Pod.Namespace, Name: r.Pod.Name, Static: map[string]lifecycle.StaticGrant{}, Containers: map[string]lifecycle.DeviceGrant{}}
		for name, s := range r.Pod.PodResources {
			p.kubeletGrants.Static[name], p.kubeletGrants.Containers[name] = staticOf(s), devicesOf(s)
		}
	}
	e.pods[ref] = p
	rejected = e.decide(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: p.reported}, engine.Facts{ParentCPUs: map[string]string{p.reported.ID: requested.CPUs}})
	for _, c := range r.Containers {
		if rejected != "" {
			break
		}
		if rejected = e.create(ref, c); rejected == "" {
			e.start(ref.In(c.Name))
		}
	}
	return rejected, nil
}

// staticOf converts the CPUs and memory nodes that the kubelet granted a container. It ignores errors, because the
// lists were checked when the scenario was read.
func staticOf(s scenario.Static) lifecycle.StaticGrant {
	cpus, mems, _ := s.IDs()
	return lifecycle.StaticGrant{CPUs: cpus, Reported: true, Mems: mems}
}

// devicesOf converts the devices that the kubelet granted a container.
func devicesOf(s scenario.Static) lifecycle.DeviceGrant {
	g := lifecycle.DeviceGrant{IDs: map[string][]string{}, NUMA: map[string][]int{}}
	for resource, list := range s.Devices {
		nodes, _ := topology.ParseList(list) // no error: the list was checked when the scenario was read
		g.IDs[resource], g.NUMA[resource] = []string{"0"}, nodes
	}
	return g
}

// specOf returns the spec that the kubelet reports for the pod.
func (p *pod) specOf() (*lifecycle.PodSpec, error) {
	text, err := json.Marshal(map[string]any{
		"metadata": map[string]any{
			"uid": p.reported.UID, "name": p.reported.Name, "namespace": p.reported.Namespace, "labels": p.scenarioPod.Labels, "annotations": p.scenarioPod.Annotations,
		},
		"spec": p.scenarioPod.Spec, "status": map[string]string{"qosClass": p.scenarioPod.QoS},
	})
	if err != nil {
		return nil, err
	}
	return podspec.ParsePod(text)
}

// annotate changes the labels, annotations and spec that the kubelet reports for a pod.
func (e *Engine) annotate(a *scenario.Annotate) (err error) {
	p := e.pods[a.Pod]
	p.scenarioPod.Labels, p.scenarioPod.Annotations = a.Labels, a.Annotations
	if len(a.Spec) > 0 {
		p.scenarioPod.Spec = a.Spec
	}
	if p.spec, err = p.specOf(); err == nil {
		e.decide(lifecycle.Event{Kind: lifecycle.Inform, Pod: p.reported}, engine.Facts{})
	}
	return err
}

// create creates a container in the pod ref.
func (e *Engine) create(ref scenario.Ref, requested scenario.Container) (rejected string) {
	e.createdCount++
	p := e.pods[ref]
	c := &ctr{requested: requested, reported: &lifecycle.Container{
		ID: "container-" + strconv.Itoa(e.createdCount), PodID: p.reported.ID, Name: requested.Name, State: lifecycle.StateCreated, CgroupsPath: "/any",
		Labels: requested.Labels, Annotations: requested.Annotations, Args: requested.Args, CDIDevices: requested.CDI, Resources: resourcesOf(requested.Resources),
	}}
	for _, name := range slices.Sorted(maps.Keys(requested.Env)) {
		c.reported.Env = append(c.reported.Env, name+"="+requested.Env[name])
	}
	rejected = e.decide(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: p.reported, Container: c.reported}, e.hostFacts(c.reported))
	if rejected != "" {
		e.refused[ref] = true
		return rejected
	}
	c.initial = e.state.Values(e.state.Container(c.reported.ID))
	e.ctrs[ref.In(requested.Name)] = c
	return ""
}

// hostFacts returns the facts about the node's CDI devices, and about the network interfaces that a container
// requests.
func (e *Engine) hostFacts(c *lifecycle.Container) (f engine.Facts) {
	f.NodeDevices = e.node.Host.CDI
	p := e.state.Pod(c.PodID)
	if e.links == nil || p == nil {
		return f
	}
	f.HostInterfaces = map[string]bool{}
	for _, asked := range p.Intent.InterfacesOf(c.Name) {
		for _, d := range asked.V {
			f.HostInterfaces[d.Host], _ = e.links.Has(d.Host)
		}
	}
	return f
}

// start starts a container. Before that, it moves network interfaces of the host to the container's pod.
func (e *Engine) start(ref scenario.Ref) {
	if e.links != nil && e.movesInterfaces {
		for _, v := range e.ctrs[ref].initial {
			if v.Field == lifecycle.NetDevice {
				_ = e.links.Move(v.Key, e.pods[ref.Pod()].reported.ID) // a failure shows as an error of the runtime
			}
		}
	}
	e.decide(lifecycle.Event{Kind: lifecycle.StartContainer, Pod: e.pods[ref.Pod()].reported, Container: e.ctrs[ref].reported}, engine.Facts{})
}

// update plays an update of a container's resources, and of what the kubelet grants the container.
func (e *Engine) update(u *scenario.Update) {
	p, c := e.pods[u.Container.Pod()], e.ctrs[u.Container]
	for _, of := range []*scenario.Resources{u.Pod, u.PodAfter} {
		if of != nil {
			p.requested = withChanges(p.requested, *of)
		}
	}
	if u.PodResources != nil && p.kubeletGrants != nil {
		now := *p.kubeletGrants
		now.Static = maps.Clone(now.Static)
		now.Static[u.Container.Container()] = staticOf(*u.PodResources)
		p.kubeletGrants = &now
		e.decide(lifecycle.Event{Kind: lifecycle.Inform, Pod: p.reported}, engine.Facts{})
	}
	requested := resourcesOf(u.Resources)
	e.decide(lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p.reported, Container: c.reported, Requested: &requested}, engine.Facts{})
}

// setKubeletStopped stops or starts the kubelet. After a start, the kubelet reports the specs and grants that it has
// not reported before.
func (e *Engine) setKubeletStopped(stopped bool) {
	e.kubeletStopped = stopped
	for _, ref := range slices.Sorted(maps.Keys(e.pods)) {
		if p := e.pods[ref]; !stopped && (!p.specReported && p.spec != nil || !p.grantsReported && p.kubeletGrants != nil) {
			e.decide(lifecycle.Event{Kind: lifecycle.Inform, Pod: p.reported}, engine.Facts{})
		}
	}
}

// end stops the pod or container ref. If remove is true, it also removes the pod or container.
func (e *Engine) end(ref scenario.Ref, remove bool) {
	p := e.pods[ref.Pod()]
	decide := func(kind lifecycle.Kind, c *ctr) {
		ev := lifecycle.Event{Kind: kind, Pod: p.reported}
		if c != nil {
			ev.Container = c.reported
		}
		e.decide(ev, engine.Facts{})
	}
	for _, at := range slices.Sorted(maps.Keys(e.ctrs)) {
		if at != ref && at.Pod() != ref {
			continue
		}
		decide(lifecycle.StopContainer, e.ctrs[at])
		if remove {
			decide(lifecycle.RemoveContainer, e.ctrs[at])
			delete(e.ctrs, at)
		}
	}
	if ref.Container() != "" {
		return
	}
	if decide(lifecycle.StopPodSandbox, nil); e.links != nil {
		e.links.End(p.reported.ID)
	}
	if remove {
		decide(lifecycle.RemovePodSandbox, nil)
		delete(e.pods, ref)
	}
}

// withChanges returns the resources r with changes: each field that is set in the parameter more has the value from
// more.
func withChanges(r, more scenario.Resources) scenario.Resources {
	if more.Shares != nil {
		r.Shares = more.Shares
	}
	if more.Quota != nil {
		r.Quota = more.Quota
	}
	if more.Period != nil {
		r.Period = more.Period
	}
	if more.Memory != nil {
		r.Memory = more.Memory
	}
	r.CPUs, r.Mems = cmp.Or(more.CPUs, r.CPUs), cmp.Or(more.Mems, r.Mems)
	return r
}

// resourcesOf converts resources of a scenario.
func resourcesOf(r scenario.Resources) lifecycle.Resources {
	out := lifecycle.Resources{CPU: lifecycle.CPU{
		Shares: opt(r.Shares), Quota: opt(r.Quota), Period: opt(r.Period), CPUs: r.CPUs, Mems: r.Mems,
	}}
	out.Memory.Limit = opt(r.Memory)
	for _, size := range slices.Sorted(maps.Keys(r.HugePages)) {
		out.Hugepages = append(out.Hugepages, lifecycle.HugepageLimit{Size: size, Limit: r.HugePages[size]})
	}
	return out
}

// opt converts a pointer to an optional value; nil means that the value is not set.
func opt[T comparable](p *T) lifecycle.Opt[T] {
	if p == nil {
		return lifecycle.Opt[T]{}
	}
	return lifecycle.Some(*p)
}
