package recording

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/topology"
)

// APIVersion is the only version of recordings that this package writes and reads.
const APIVersion = "trimtab.io/v1alpha1"

// The kinds of lines.
const (
	KindHeader = "Recording"
	KindEvent  = "Event"
)

// Node has the inputs of decisions that are not in events: the machine, the results of probes, and the configuration.
type Node struct {
	Config  string `json:"config"` // the whole configuration in force, as YAML
	Machine topology.Layout
	// Released reports whether the agent has given all containers the values that the kubelet requested from the
	// runtime, and has decided nothing since then.
	Released bool
	Unified  bool // the node uses cgroup version 2
	Host     lifecycle.Host
	// Findings are the answers of probes, by feature.
	Findings map[string]lifecycle.Finding
	// Namespaces are the labels of namespaces, by name.
	Namespaces map[string]map[string]string
}

// Header is the first line of a recording.
type Header struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Version    string // of the agent
	Time       time.Time
	// WithoutEnv reports whether the recording lacks the values of environment variables.
	WithoutEnv bool
	Node       Node
	// State is the agent's state when the recording began.
	State *engine.SavedState
}

// Line is an event in a recording.
type Line struct {
	Kind string `json:"kind"`
	// Seq is the number of the event since the recording began, from 1. Lost is the number of events that are
	// missing directly before this one, because the listener was too slow.
	Seq   uint64
	Lost  uint64
	Time  time.Time
	Op    string // the id of the event in the log
	From  string // the attachment that reported the event; "" if the agent made the event itself
	Event lifecycle.Event
	Facts Facts
	// Same lists the parts of Event and Facts that the line leaves out, because they are the same as in the engine's
	// state before the event.
	Same UnchangedParts
	// Node is the node after a Configure event; nil for other events.
	Node *Node
	// Decision is the JSON form of the Decision about the event.
	Decision json.RawMessage
}

// UnchangedParts lists the parts of an event and its facts that are the same as in the engine's state before the event.
type UnchangedParts struct {
	// Resources reports whether the resources of the event's pod are unchanged.
	Resources bool
	// Specs and Granted are the UIDs of the pods whose spec or kubelet grants are unchanged.
	Specs   []string
	Granted []string
}

// Facts is the recorded form of engine.Facts: what the agent found out about the node for the decision. It lacks the
// policy and the machine of a Configure event, which the replay makes from the line's Node. It also lacks Balloons,
// Claims, ColdStartsOver, ExpectsMorePods, KernelMems and LentPods.
type Facts struct {
	// Records has the trusted records of containers, and UntrustedRecords the problems of other records, by container
	// id.
	Records          map[string]Record
	UntrustedRecords map[string]lifecycle.Problem `json:"distrusted"`
	// ParentCPUs has the CPUs that the cgroups of pods allow, by sandbox id. KernelCPUs and RunningCPUs have the CPUs
	// that the kernel gives to containers, by container id: KernelCPUs if the agent cannot rely on the container's
	// record, RunningCPUs if the runtime cannot describe one of the containers. OwnedCPUs has the CPUs that pods own,
	// by pod UID. All are lists in the kernel's format, such as "0-3,8".
	ParentCPUs  map[string]string
	KernelCPUs  map[string]string `json:"kernel"`
	RunningCPUs map[string]string `json:"runs"`
	OwnedCPUs   map[string]string `json:"grants"`
	// EndedSandboxes has the ids of sandboxes whose cgroup is gone and whose end no runtime reported. CgroupGone means
	// that the agent itself made a RemovePodSandbox event for such a sandbox.
	EndedSandboxes map[string]bool `json:"ended"`
	CgroupGone     bool            `json:"swept"`
	// Specs and Granted have the specs of pods, and the kubelet's grants to their containers, by pod UID.
	Specs   map[string]*lifecycle.PodSpec
	Granted map[string]*lifecycle.KubeletGrants
	// HookServers has the merged answers of hook servers. PluginValues has the values of resource plugins, by pod UID
	// and container name.
	HookServers  lifecycle.HookServerAnswer
	PluginValues map[string]map[string][]lifecycle.Value `json:"allocated,omitempty"`
	// CannotRefuse means that the container already exists, so that the agent cannot refuse its creation.
	CannotRefuse bool `json:"unstoppable,omitempty"`
	// HostInterfaces reports, for each network interface that a new container requests, whether the host has it.
	HostInterfaces map[string]bool `json:",omitempty"`
	// FormerAgent has the CPUs and memory nodes that another agent gave to the containers of a Synchronize event.
	FormerAgent map[string]lifecycle.FormerContainer `json:"former,omitempty"`
	// NodeDevices are the CDI devices of the node, if a new container requests CDI devices. HeldDevices has the CDI
	// devices that containers have exclusively, by pod UID and container name.
	NodeDevices []lifecycle.NodeDevice         `json:",omitempty"`
	HeldDevices map[string]map[string][]string `json:",omitempty"`
}

// Record is the record of a container, with the fields that the JSON form of lifecycle.Record lacks: Pristine,
// FromCheckpoint and StampedPristine have the values of the fields of lifecycle.Record with the same names.
type Record struct {
	Record          lifecycle.Record
	Pristine        lifecycle.Resources
	FromCheckpoint  bool                 `json:"late"`
	StampedPristine *lifecycle.Resources `json:"stamped"`
}

// RecordedEvent is an event with its facts and its decision, before it is encoded as a Line. Its fields have the
// meaning of the fields of Line with the same names.
type RecordedEvent struct {
	Seq      uint64
	Time     time.Time
	Op       string
	From     string
	Event    *lifecycle.Event
	Facts    engine.Facts
	Same     UnchangedParts
	Node     *Node
	Decision Decision
}

// NewRecordedEvent makes a RecordedEvent without the decision. The caller calls NewRecordedEvent before the engine
// decides, because NewRecordedEvent compares the facts with the engine's state before the event. The caller adds the
// decision later.
func NewRecordedEvent(s *engine.State, ev *lifecycle.Event, f engine.Facts) *RecordedEvent {
	e := &RecordedEvent{Event: ev, Facts: f}
	if ev.Pod != nil && ev.Pod.Resources != nil {
		known := s.Pod(ev.Pod.ID)
		e.Same.Resources = known != nil && known.Pod.Resources == ev.Pod.Resources
	}
	if len(f.Specs) == 1 && ev.Pod != nil { // events with several specs are rare
		for uid, spec := range f.Specs {
			if spec != nil && slices.ContainsFunc(s.PodsOf(uid), func(p *engine.Pod) bool { return p.Spec == spec }) {
				e.Same.Specs = []string{uid}
			}
		}
	}
	if len(f.Granted) == 1 && ev.Pod != nil {
		for uid, granted := range f.Granted {
			if granted != nil && slices.ContainsFunc(s.PodsOf(uid), func(p *engine.Pod) bool { return p.Granted == granted }) {
				e.Same.Granted = []string{uid}
			}
		}
	}
	return e
}

// line encodes the event as a line of a recording. The parameter lost is the number of events that are missing before
// it. If withoutEnv is true, the line has no values of environment variables.
func (e *RecordedEvent) line(enc encoder, lost uint64, withoutEnv bool) ([]byte, error) {
	decision, err := enc.encode(e.Decision)
	if err != nil {
		return nil, err
	}
	l := Line{Kind: KindEvent, Seq: e.Seq, Lost: lost, Time: e.Time, Op: e.Op, From: e.From, Event: *e.Event, Facts: recordedFacts(&e.Facts, &e.Same), Same: e.Same, Node: e.Node, Decision: decision}
	if e.Same.Resources {
		pod := *l.Event.Pod
		pod.Resources, l.Event.Pod = nil, &pod
	}
	if withoutEnv {
		l.Event.Container = withoutEnvValues(l.Event.Container)
		l.Event.Containers = slices.Clone(l.Event.Containers)
		for i, c := range l.Event.Containers {
			l.Event.Containers[i] = withoutEnvValues(c)
		}
	}
	return enc.encode(&l)
}

// withoutEnvValues returns a copy of a container without the values of environment variables, which the container and
// its OCI hooks have.
func withoutEnvValues(c *lifecycle.Container) *lifecycle.Container {
	if c == nil {
		return nil
	}
	cut := func(env []string) (out []string) {
		for _, v := range env {
			name, _, _ := strings.Cut(v, "=")
			out = append(out, name+"=")
		}
		return out
	}
	n := *c
	n.Env = cut(c.Env)
	if c.Hooks != nil {
		h := *c.Hooks
		for _, list := range []*[]lifecycle.OCIHook{&h.Prestart, &h.CreateRuntime, &h.CreateContainer, &h.StartContainer, &h.Poststart, &h.Poststop} {
			*list = slices.Clone(*list)
			for i := range *list {
				(*list)[i].Env = cut((*list)[i].Env)
			}
		}
		n.Hooks = &h
	}
	return &n
}

// recordedFacts returns the recorded form of the facts, without the parts in same.
func recordedFacts(f *engine.Facts, same *UnchangedParts) Facts {
	out := Facts{
		UntrustedRecords: f.UntrustedRecords, ParentCPUs: f.ParentCPUs, KernelCPUs: f.KernelCPUs, RunningCPUs: f.RunningCPUs, OwnedCPUs: f.OwnedCPUs, EndedSandboxes: f.EndedSandboxes, CgroupGone: f.CgroupGone,
		Specs: f.Specs, Granted: f.Granted, HookServers: f.HookServers, PluginValues: f.PluginValues, CannotRefuse: f.CannotRefuse, HostInterfaces: f.HostInterfaces,
		FormerAgent: f.FormerAgent,
		NodeDevices: f.NodeDevices, HeldDevices: f.HeldDevices,
	}
	if len(same.Specs) > 0 {
		out.Specs = nil
	}
	if len(same.Granted) > 0 {
		out.Granted = nil
	}
	for id, r := range f.Records {
		if out.Records == nil {
			out.Records = make(map[string]Record, len(f.Records))
		}
		out.Records[id] = Record{Record: r, Pristine: r.Pristine, FromCheckpoint: r.FromCheckpoint, StampedPristine: r.StampedPristine}
	}
	return out
}

// engineFacts returns the facts in the form that the engine needs.
func (f *Facts) engineFacts(s *engine.State, same *UnchangedParts) engine.Facts {
	out := engine.Facts{
		UntrustedRecords: f.UntrustedRecords, ParentCPUs: f.ParentCPUs, KernelCPUs: f.KernelCPUs, RunningCPUs: f.RunningCPUs, OwnedCPUs: f.OwnedCPUs, EndedSandboxes: f.EndedSandboxes, CgroupGone: f.CgroupGone,
		Specs: f.Specs, Granted: f.Granted, HookServers: f.HookServers, PluginValues: f.PluginValues, CannotRefuse: f.CannotRefuse, HostInterfaces: f.HostInterfaces,
		FormerAgent: f.FormerAgent,
		NodeDevices: f.NodeDevices, HeldDevices: f.HeldDevices,
	}
	for _, uid := range same.Specs {
		for _, p := range s.PodsOf(uid) {
			if p.Spec != nil {
				out.Specs = map[string]*lifecycle.PodSpec{uid: p.Spec}
			}
		}
	}
	for _, uid := range same.Granted {
		for _, p := range s.PodsOf(uid) {
			if p.Granted != nil {
				out.Granted = map[string]*lifecycle.KubeletGrants{uid: p.Granted}
			}
		}
	}
	for id, r := range f.Records {
		if out.Records == nil {
			out.Records = make(map[string]engine.Record, len(f.Records))
		}
		rec := r.Record
		rec.Pristine, rec.FromCheckpoint, rec.StampedPristine = r.Pristine, r.FromCheckpoint, r.StampedPristine
		out.Records[id] = rec
	}
	return out
}

// LayoutOf returns the data from which topology.Build makes the same machine.
func LayoutOf(m *topology.Machine) topology.Layout {
	l := topology.Layout{CPUs: m.CPUs, Nodes: slices.Clone(m.Nodes), Offline: m.Offline, Devices: m.Devices}
	for i := range l.Nodes {
		l.Nodes[i].CPUs = topology.Set{} // topology.Build computes it from l.CPUs
	}
	return l
}
