package engine

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/placement/topologyaware"
)

// fuzzKind is a kind of pod of nri-plugins' fuzz tests (0.14, topology-aware/n4c16, test06): how many containers it
// has, and what each requests.
type fuzzKind struct {
	name       string
	containers int
	milli      int64
	limit      int64 // 0 for none
	mega       int64 // memory limit in MB; 0 for none
}

func (k fuzzKind) reserved() bool { return k.name[0] == 'r' }

func fuzzKinds() []fuzzKind {
	return []fuzzKind{
		{"gu0", 1, 200, 200, 1500}, {"gu1", 2, 1000, 1000, 500}, {"gu2", 2, 1200, 1200, 4500}, {"gu3", 3, 2000, 2000, 500}, {"gu4", 1, 4200, 4200, 100},
		{"bu0", 1, 900, 1200, 50}, {"bu1", 2, 1800, 1900, 300},
		{"be0", 1, 0, 0, 0}, {"be1", 3, 0, 0, 0},
		{"rgu0", 2, 100, 100, 1000}, {"rbu0", 1, 99, 100, 100}, {"rbe0", 1, 0, 0, 0},
	}
}

// The resources that pods of the model have together at most.
const (
	fuzzMilli, fuzzReservedMilli, fuzzMega = 14050, 1000, 7500
)

// fuzzAffinities are annotations with affinities in both forms, and none.
func fuzzAffinities() []map[string]string {
	return []map[string]string{
		nil,
		{intent.NRIAffinity: "c0: [c1, c2]"},
		{intent.NRIAntiAffinity: "c0: [c1]"},
		{intent.NRIAffinity: `c0: [{scope: {key: namespace, operator: Equals, values: [default]}, match: {key: name, operator: Equals, values: [c0]}, weight: 3}]`},
		{intent.NRIAntiAffinity: `{"c0":[{"scope":{"operator":"AlwaysTrue"},"match":{"key":"pod/qosclass","operator":"NotEqual","values":["BestEffort"]}}]}`},
		{
			intent.NRIAffinity:     `c1: [{match: {key: name, operator: Exists}}, {scope: {operator: AlwaysTrue}, match: {key: namespace, operator: In, values: [other]}}]`,
			intent.NRIAntiAffinity: `c0: [{scope: {key: namespace, operator: Equals, values: [default]}, match: {key: name, operator: Equals, values: [c0]}, weight: 3}]`,
		},
	}
}

// fuzzPod is a pod that runs.
type fuzzPod struct {
	kind fuzzKind
	pod  *lifecycle.Pod
	all  []*lifecycle.Container
}

func (p *fuzzPod) milli() (sum int64) {
	for _, c := range p.all {
		sum += sharesMilli(&c.Resources)
	}
	return sum
}

// fuzzModel creates, resizes and removes pods, and restarts the agent.
type fuzzModel struct {
	s       *State
	running []*fuzzPod
	n       int
	// namespaces are those of pods that are not reserved.
	namespaces []string
	// annotations are those of pods: each gets one of them.
	annotations []map[string]string
	// invariants are those of the policy.
	invariants func(*rapid.T, *State)
}

// fits reports whether the budget has room for more of a kind.
func (f *fuzzModel) fits(k fuzzKind, milli, mega int64) bool {
	for _, p := range f.running {
		if mega += int64(len(p.all)) * p.kind.mega; p.kind.reserved() == k.reserved() {
			milli += p.milli()
		}
	}
	if k.reserved() {
		return milli <= fuzzReservedMilli && mega <= fuzzMega
	}
	return milli <= fuzzMilli && mega <= fuzzMega
}

func (f *fuzzModel) decide(t *rapid.T, ev *lifecycle.Event, facts Facts) *Plan {
	t.Helper()
	again, plan, was := Decide(f.s.Copy(), ev, facts), Decide(f.s, ev, facts), f.s.layout
	if a, b := fmt.Sprint(again.GroupChanges), fmt.Sprint(plan.GroupChanges); a != b {
		t.Fatalf("decided %s, and %s", a, b)
	}
	if plan.Reject != "" {
		t.Fatalf("%s is refused: %s", ev.Kind, plan.Reject)
	}
	f.s.Commit(plan)
	checkDerived(t, was, f.s)
	return plan
}

func (f *fuzzModel) create(t *rapid.T) {
	k := rapid.SampledFrom(fuzzKinds()).Draw(t, "kind")
	if !f.fits(k, int64(k.containers)*k.milli, int64(k.containers)*k.mega) {
		t.Skip()
	}
	f.n++
	namespace := rapid.SampledFrom(f.namespaces).Draw(t, "namespace")
	if k.reserved() {
		namespace = "kube-system"
	}
	pod, _ := treePod(f.n, namespace, k.milli, k.limit)
	if len(f.annotations) > 0 {
		pod.Annotations = rapid.SampledFrom(f.annotations).Draw(t, "annotations")
	}
	p := &fuzzPod{kind: k, pod: pod}
	var parts []*lifecycle.Resources
	for i := range k.containers {
		_, c := treePod(f.n, namespace, k.milli, k.limit)
		c.ID, c.Name = fmt.Sprintf("%s-%d", c.ID, i), fmt.Sprintf("c%d", i)
		c.Resources.Memory.Limit = lifecycle.Some(k.mega << 20)
		p.all, parts = append(p.all, c), append(parts, &c.Resources)
	}
	sum := sumOf(parts)
	pod.Resources = &sum
	f.decide(t, &lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod}, Facts{})
	for _, c := range p.all {
		f.decide(t, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{})
	}
	f.running = append(f.running, p)
}

func (f *fuzzModel) one(t *rapid.T) *fuzzPod {
	if len(f.running) == 0 {
		t.Skip()
	}
	return rapid.SampledFrom(f.running).Draw(t, "pod")
}

func (f *fuzzModel) remove(t *rapid.T) {
	p := f.one(t)
	f.running = slices.DeleteFunc(f.running, func(o *fuzzPod) bool { return o == p })
	f.decide(t, &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: p.pod}, Facts{})
}

// resize changes the request of a container, and keeps its pod's class.
func (f *fuzzModel) resize(t *rapid.T) {
	p := f.one(t)
	i := rapid.IntRange(0, len(p.all)-1).Draw(t, "container")
	milli := rapid.SampledFrom([]int64{100, 500, 1000, 1200, 2000, 2500, 4200}).Draw(t, "milli")
	if p.kind.milli == 0 || !f.fits(p.kind, milli-sharesMilli(&p.all[i].Resources), 0) {
		t.Skip()
	}
	limit := milli + p.kind.limit - p.kind.milli
	r := lifecycle.Resources{CPU: lifecycle.CPU{Shares: lifecycle.Some(intent.SharesFromMilli(milli)), Quota: lifecycle.Some(limit * 100), Period: lifecycle.Some(uint64(100000))}}
	c := *p.all[i]
	c.Resources.CPU = r.CPU
	p.all[i] = &c
	f.decide(t, &lifecycle.Event{Kind: lifecycle.UpdateContainer, Pod: p.pod, Container: &c, Requested: &r}, Facts{})
}

// restart starts an agent that knows the records and the checkpoint, and compares what it decides.
func (f *fuzzModel) restart(t *rapid.T) {
	ev := &lifecycle.Event{Kind: lifecycle.Synchronize}
	facts := Facts{Records: map[string]Record{}, Balloons: map[string]string{}, OwnedCPUs: map[string]string{}}
	for _, p := range f.running {
		ev.Pods = append(ev.Pods, p.pod)
		for _, c := range p.all {
			now := f.s.Container(c.ID)
			ev.Containers = append(ev.Containers, c)
			facts.Records[c.ID] = Record{Version: lifecycle.RecordVersion, CPUs: f.s.Machine.Format(now.Stamp.CPUs), RecordFields: now.RecordFields, FromCheckpoint: true}
		}
	}
	for name, cpus := range f.s.Balloons() {
		facts.Balloons[name] = f.s.Machine.Format(cpus)
	}
	for uid, cpus := range f.s.CPUsByPod() {
		facts.OwnedCPUs[uid] = f.s.Machine.Format(cpus)
	}
	was := f.s
	f.s = NewState(was.Machine, was.Policy)
	f.s.Commit(Decide(f.s, ev, facts))
	for _, id := range was.Containers() {
		before, after := was.Container(id), f.s.Container(id)
		if after == nil || before.Assignment.CPUGroup != after.Assignment.CPUGroup || was.CPUs(before) != f.s.CPUs(after) {
			t.Fatalf("%s had CPUs %s; after a restart %+v", id, was.Machine.Format(was.CPUs(before)), after)
		}
	}
	checkScopes(t, f.s)
	f.foresee(t, was)
}

// foresee checks that a pod would be placed as before the restart.
func (f *fuzzModel) foresee(t *rapid.T, was *State) {
	t.Helper()
	for i, annotations := range f.annotations {
		pod, c := treePod(1000+i, "default", 500, 600)
		pod.Annotations, c.Name = annotations, "c0"
		ev := &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}
		before, after := Decide(was, ev, Facts{}).Container, Decide(f.s, ev, Facts{}).Container
		if before.Assignment.CPUGroup != after.Assignment.CPUGroup || before.Assignment.Why != after.Assignment.Why {
			t.Fatalf("a pod with %v would get %v before the restart, %v after it", annotations, before.Assignment, after.Assignment)
		}
	}
}

// check checks that every container of a pod runs on some CPUs: those of the reserved pods, and no others, on the reserved
// ones.
func (f *fuzzModel) check(t *rapid.T) {
	for _, p := range f.running {
		for _, c := range p.all {
			at := f.s.Container(c.ID)
			cpus, none := f.s.CPUs(at), at.Assignment.Pool == placement.Balloon && f.s.BalloonCPUs(at.Balloon).Empty()
			switch reserved := f.s.Policy.Pools.Reserved; {
			case cpus.Empty():
				t.Fatalf("%s of %s has no CPU", c.ID, p.kind.name)
			case none: // no CPU was left for its balloon
			case p.kind.reserved() && !reserved.Contains(cpus), !p.kind.reserved() && !cpus.And(reserved).Empty():
				t.Fatalf("%s of %s runs on CPUs %s", c.ID, p.kind.name, f.s.Machine.Format(cpus))
			}
		}
	}
	f.invariants(t, f.s)
}

// TestFuzzModel walks at random through creations, resizes, removals and restarts, within a budget that the node has. It is
// the model of nri-plugins' fuzz tests, with resizes and restarts: all pods start, the reserved ones on the reserved CPUs
// and the others beside them; nothing moves at a restart; and the invariants of the policy hold.
func TestFuzzModel(t *testing.T) {
	t.Parallel()
	shared := topologyaware.Options{PreferIsolatedCPUs: true, ColocatePods: true, ColocateNamespaces: true}
	for name, policy := range map[string]func() (*State, func(*rapid.T, *State)){
		"topology-aware": func() (*State, func(*rapid.T, *State)) {
			m, p := topologyAwarePolicy(t, n4c16, topologyaware.Options{PreferIsolatedCPUs: true})
			return NewState(m, p), checkTree
		},
		"topology-aware, colocated": func() (*State, func(*rapid.T, *State)) {
			m, p := topologyAwarePolicy(t, n4c16, shared)
			return NewState(m, p), checkTree
		},
		"topology-aware, affinities": func() (*State, func(*rapid.T, *State)) {
			m, p := topologyAwarePolicy(t, n4c16, topologyaware.Options{PreferIsolatedCPUs: true, ColocateNamespaces: true})
			p.Dialects = append(p.Dialects, "nri-plugins")
			return NewState(m, p), checkTree
		},
		"balloons": func() (*State, func(*rapid.T, *State)) {
			m, p := balloonsPolicy(t, n4c16, balloons.PolicyOptions{BalloonTypes: balloonTypes()})
			return NewState(m, p), checkBalloons
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(t *rapid.T) {
				f := &fuzzModel{namespaces: []string{"default"}}
				if name == "balloons" {
					f.namespaces = []string{"default", "fixed", "grows", "spreads", "apart-1", "apart-2", "grouped", "both", "either"}
				}
				if name == "topology-aware, affinities" {
					f.namespaces, f.annotations = []string{"default", "other"}, fuzzAffinities()
				}
				f.s, f.invariants = policy()
				t.Repeat(map[string]func(*rapid.T){"create": f.create, "remove": f.remove, "resize": f.resize, "restart": f.restart, "": f.check})
			})
		})
	}
}
