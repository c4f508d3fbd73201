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

// Node is what decisions depend on besides events: the machine, the results of its probes, and the configuration.
type Node struct {
	Config  string `json:"config"` // the whole configuration in force, as YAML
	Machine topology.Layout
	// Released means that the agent has restored all values and decides nothing.
	Released bool
	Unified  bool // cgroups are of version 2
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
	// WithoutEnv means that the values of environment variables were left out.
	WithoutEnv bool
	Node       Node
	// State is what the agent knew and had decided when the recording began.
	State *engine.Saved
}

// Line is an event in a recording.
type Line struct {
	Kind string `json:"kind"`
	// Seq counts the events since the recording began, from 1. Lost is how many events before this one are missing
	// because the listener was too slow.
	Seq   uint64
	Lost  uint64
	Time  time.Time
	Op    string // the name of the event in the log
	From  string // the attachment; "" for an event of the agent's own
	Event lifecycle.Event
	Facts Facts
	// Same names the parts of the event that the agent took from its own state. The line leaves them out.
	Same Same
	// Node is the node after a Configure event; nil for other events.
	Node *Node
	// Decision is the result of the event.
	Decision json.RawMessage
}

// Same names the parts of an event that equal the state before the event.
type Same struct {
	// Resources means the resources of the event's pod.
	Resources bool
	// Specs and Granted are UIDs of pods.
	Specs   []string
	Granted []string
}

// Facts are the facts of an event. Policy and machine of a Configure are in the line's
// Node.
type Facts struct {
	Records     map[string]Record
	Distrusted  map[string]lifecycle.Problem
	ParentCPUs  map[string]string
	Kernel      map[string]string
	Runs        map[string]string
	Grants      map[string]string
	Ended       map[string]bool
	Swept       bool
	Specs       map[string]*lifecycle.PodSpec
	Granted     map[string]*lifecycle.KubeletGrants
	HookServers lifecycle.HookServerAnswer
	Allocated   map[string]map[string][]lifecycle.Value `json:",omitempty"`
	Unstoppable bool                                    `json:",omitempty"`
	// HostInterfaces has the network interfaces that a new container asks for.
	HostInterfaces map[string]bool `json:",omitempty"`
}

// Record is the record of a container, with the parts that a stored record leaves out.
type Record struct {
	Record   lifecycle.Record
	Pristine lifecycle.Resources
	Late     bool
	Stamped  *lifecycle.Resources
}

// Entry is an event on its way to a recording.
type Entry struct {
	Seq      uint64
	Time     time.Time
	Op       string
	From     string
	Event    *lifecycle.Event
	Facts    engine.Facts
	Same     Same
	Node     *Node
	Decision Decision
}

// Enter begins the entry of an event before the decision about it.
func Enter(s *engine.State, ev *lifecycle.Event, f engine.Facts) *Entry {
	e := &Entry{Event: ev, Facts: f}
	if ev.Pod != nil && ev.Pod.Resources != nil {
		known := s.Pod(ev.Pod.ID)
		e.Same.Resources = known != nil && known.Pod.Resources == ev.Pod.Resources
	}
	if len(f.Specs) == 1 && ev.Pod != nil { // all other events are rare
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

// line returns the entry as the recording has it.
func (e *Entry) line(by encoder, lost uint64, withoutEnv bool) ([]byte, error) {
	decision, err := by.encode(e.Decision)
	if err != nil {
		return nil, err
	}
	l := Line{Kind: KindEvent, Seq: e.Seq, Lost: lost, Time: e.Time, Op: e.Op, From: e.From, Event: *e.Event, Facts: factsOf(&e.Facts, &e.Same), Same: e.Same, Node: e.Node, Decision: decision}
	if e.Same.Resources {
		pod := *l.Event.Pod
		pod.Resources, l.Event.Pod = nil, &pod
	}
	if withoutEnv {
		l.Event.Container = withoutValues(l.Event.Container)
		l.Event.Containers = slices.Clone(l.Event.Containers)
		for i, c := range l.Event.Containers {
			l.Event.Containers[i] = withoutValues(c)
		}
	}
	return by.encode(&l)
}

// withoutValues returns a container without the values of its environment variables, and of those of its OCI hooks.
func withoutValues(c *lifecycle.Container) *lifecycle.Container {
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

func factsOf(f *engine.Facts, same *Same) Facts {
	out := Facts{
		Distrusted: f.Distrusted, ParentCPUs: f.ParentCPUs, Kernel: f.Kernel, Runs: f.Runs, Grants: f.Grants, Ended: f.Ended, Swept: f.Swept,
		Specs: f.Specs, Granted: f.Granted, HookServers: f.HookServers, Allocated: f.Allocated, Unstoppable: f.Unstoppable, HostInterfaces: f.HostInterfaces,
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
		out.Records[id] = Record{Record: r, Pristine: r.Pristine, Late: r.Late, Stamped: r.Stamped}
	}
	return out
}

// of returns the facts in the form that the engine needs.
func (f *Facts) of(s *engine.State, same *Same) engine.Facts {
	out := engine.Facts{
		Distrusted: f.Distrusted, ParentCPUs: f.ParentCPUs, Kernel: f.Kernel, Runs: f.Runs, Grants: f.Grants, Ended: f.Ended, Swept: f.Swept,
		Specs: f.Specs, Granted: f.Granted, HookServers: f.HookServers, Allocated: f.Allocated, Unstoppable: f.Unstoppable, HostInterfaces: f.HostInterfaces,
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
		rec.Pristine, rec.Late, rec.Stamped = r.Pristine, r.Late, r.Stamped
		out.Records[id] = rec
	}
	return out
}

// LayoutOf returns a machine as data.
func LayoutOf(m *topology.Machine) topology.Layout {
	l := topology.Layout{CPUs: m.CPUs, Nodes: slices.Clone(m.Nodes), Offline: m.Offline, Devices: m.Devices}
	for i := range l.Nodes {
		l.Nodes[i].CPUs = topology.Set{} // follows from the CPUs
	}
	return l
}
