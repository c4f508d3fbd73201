package churn

import (
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/containerd/nri/pkg/adaptation"
	"go.uber.org/goleak"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/internal/topology"
)

func TestMain(m *testing.M) {
	sim.SetNRILog(slog.New(slog.DiscardHandler))
	// A runtime drops a plugin that is slow; here everything else is looked at.
	adaptation.SetPluginRequestTimeout(patience)
	goleak.VerifyTestMain(m)
}

// crowd is how many containers there are, once there are all.
const crowd = 1000

// TestChurn plays a thousand containers; longer, with other seeds and on both
// cgroup versions, where TRIMTAB_SOAK is set.
func TestChurn(t *testing.T) {
	t.Parallel()
	steps, seeds := 300, []uint64{1}
	if os.Getenv("TRIMTAB_SOAK") != "" {
		first := firstSeed(t)
		steps, seeds = 5000, []uint64{first, first + 1, first + 2}
	}
	for _, seed := range seeds {
		for _, v := range []cgroup.Version{cgroup.V2, cgroup.V1} {
			if v == cgroup.V1 && len(seeds) == 1 {
				continue // the soak's
			}
			t.Run(fmt.Sprintf("seed %d/%s", seed, v), func(t *testing.T) {
				t.Parallel()
				n := newNode(t, v, seed, "")
				if wrong := n.churn(crowd, steps); len(wrong) > 0 {
					n.tellOf(wrong)
					t.Fatalf("seed %d: %s", seed, strings.Join(wrong, "\n"))
				}
				if n.owned < steps/20 || n.refused > n.owned {
					t.Errorf("%d owners came to own CPUs and %d did not: this shows little", n.owned, n.refused)
				}
				if n.resized < steps/50 || n.kept == 0 {
					t.Errorf("%d owners were resized and %d were refused: this shows little", n.resized, n.kept)
				}
				t.Logf("%d pods, %d owners and %d that were refused, %d resizes and %d that were; looked at %d writes and first instructions",
					n.made, n.owned, n.refused, n.resized, n.kept, n.eye.writes)
				n.emptied()
			})
		}
	}
}

// firstSeed is the first of the soak's seeds: 1, or TRIMTAB_SEED.
func firstSeed(t *testing.T) uint64 {
	t.Helper()
	text := os.Getenv("TRIMTAB_SEED")
	if text == "" {
		return 1
	}
	seed, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		t.Fatalf("TRIMTAB_SEED is %q, want a number", text)
	}
	return seed
}

// TestChurnFaults shows that the eye sees: without the shrink of others before a
// container starts, or before one has more, I1 is broken.
func TestChurnFaults(t *testing.T) {
	t.Parallel()
	for _, fault := range []string{"late", "lost", "resizes"} {
		t.Run(fault, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, cgroup.V2, 1, fault)
			for _, w := range n.churn(100, 100) {
				if strings.HasPrefix(w, "I1") {
					t.Logf("found among %d pods: %s", n.made, w)
					return
				}
			}
			t.Error("others kept the CPUs that were given away, and nobody noticed")
		})
	}
}

// churn fills the node and plays so many steps on it; it returns what was wrong,
// at once.
func (n *node) churn(crowd, steps int) []string {
	for n.containers() < crowd {
		n.run()
		if wrong := n.eye.verdict(); len(wrong) > 0 {
			return wrong
		}
	}
	for i := range steps {
		n.step(crowd)
		switch i % 100 {
		case 24:
			n.restart("agent")
		case 49:
			n.reconfigure(i%200 < 100)
		case 74:
			n.restart("runtime")
		case 99:
			n.audit()
		}
		if wrong := n.eye.verdict(); len(wrong) > 0 {
			return append(wrong, fmt.Sprintf("at step %d", i))
		}
	}
	n.audit()
	return n.eye.verdict()
}

// named is how the eye names a container.
var named = regexp.MustCompile(`churn/[a-z]+-[0-9]+/[a-z0-9-]+`)

// tellOf logs what the agent says of the containers that the eye found something
// wrong with, and what is in their cgroups.
func (n *node) tellOf(wrong []string) {
	for _, name := range slices.Compact(slices.Sorted(slices.Values(named.FindAllString(strings.Join(wrong, " "), -1)))) {
		ref := scenario.Ref(name)
		found, _ := n.agent.Source().Explain(ref.Names())
		state, err := n.runtime.State(ref)
		n.t.Logf("%s: %+v; in force: %+v (%v)", name, found, state, err)
	}
}

func (n *node) containers() int {
	sum := 0
	for _, p := range n.pods {
		sum += len(p.ctrs)
	}
	return sum
}

// step does one of the things that happen on a node.
func (n *node) step(crowd int) {
	p := n.pods[n.rng.IntN(len(n.pods))]
	c := &p.ctrs[n.rng.IntN(len(p.ctrs))]
	switch what := n.rng.IntN(100); {
	case n.containers() < crowd:
		n.run()
	case what < 40:
		n.remove(p)
	case what < 50 && !p.stopped:
		n.crash(p, c)
	case what < 57 && !p.stopped && !p.kind.owns:
		c.Resources.Shares = new(2 + n.rng.Uint64N(1024))
		n.must("update", n.runtime.UpdateContainer(n.t.Context(), p.ref().In(c.Name), scenario.Resources{Shares: c.Resources.Shares}))
	case what < 60:
		n.stopPod(p)
	case what < 73:
		n.resizeAny()
	case what < 80:
		if waiting := slices.Sorted(maps.Keys(n.waiting)); len(waiting) > 0 { // sorted: a seed is one history
			ref := waiting[n.rng.IntN(len(waiting))]
			n.start(n.pod(ref.Pod()), ref)
		}
	default:
		n.run()
	}
}

func (n *node) pod(ref scenario.Ref) *pod {
	return n.pods[slices.IndexFunc(n.pods, func(p *pod) bool { return p.ref() == ref })]
}

func (n *node) must(what string, err error) {
	n.t.Helper()
	if err != nil {
		n.t.Fatalf("%s: %v", what, err)
	}
}

// run runs a new pod. Now and then a container is left created for a while.
func (n *node) run() {
	p := n.make(n.draw())
	n.must("run pod", n.runtime.RunPodSandbox(n.t.Context(), p.Pod, sim.SumResources(p.QoS, p.ctrs)))
	n.pods = append(n.pods, p)
	for _, c := range p.ctrs {
		n.create(p, c)
		if ref := p.ref().In(c.Name); n.rng.IntN(20) == 0 {
			n.waiting[ref] = true
		} else {
			n.start(p, ref)
		}
	}
}

func (n *node) create(p *pod, c scenario.Container) {
	n.must("create", n.runtime.CreateContainer(n.t.Context(), p.ref(), c))
	if p.kind.owns {
		p.did("creation of %s with a quota of %d: %s", c.Name, *c.Resources.Quota, saying(n.explain(p.ref().In(c.Name))))
	}
}

// start starts a created container, and has it looked at at its first
// instruction.
func (n *node) start(p *pod, ref scenario.Ref) {
	delete(n.waiting, ref)
	told := n.explain(ref)
	var owned topology.Set
	if told.Seat == "exclusive" {
		ids, err := topology.ParseList(told.CPUs)
		n.must("CPUs it owns", err)
		owned = topology.SetOf(ids...)
	}
	p.did("start of %s: %s", ref.Container(), saying(told))
	if ref.Container() == "main" {
		n.judgeGrant(p, told, owned)
	}
	dir := n.dir(p, ref)
	n.next = func() {
		n.eye.started(dir, seen{ref: ref, reclaimed: p.kind.reclaimed}, owned, p.kind.lent)
	}
	n.must("start", n.runtime.StartContainer(n.t.Context(), ref))
}

func (n *node) explain(ref scenario.Ref) api.Container {
	found, ok := n.agent.Source().Explain(ref.Names())
	if !ok || len(found) != 1 {
		n.t.Fatalf("the agent tells %d times of %s", len(found), ref)
	}
	return found[0]
}

// judgeGrant holds what a pod came to own against what it asked for.
func (n *node) judgeGrant(p *pod, told api.Container, owned topology.Set) {
	switch {
	case !p.kind.owns && !owned.Empty():
		n.blame(p, "%s owns %s and asked for none", p.ref(), told.CPUs)
	case !p.kind.owns:
	case owned.Empty() && len(told.Problems) == 0:
		n.blame(p, "%s owns nothing, and nothing says why: %+v", p.ref(), told)
	case owned.Empty():
		n.refused++
	case owned.Len() != p.cpus && !p.kind.all:
		n.blame(p, "%s owns %s, want %d CPUs", p.ref(), told.CPUs, p.cpus)
	default:
		n.owned++
	}
	if !p.kind.bound || owned.Empty() {
		return
	}
	for _, cpus := range n.eye.nodes {
		if both := cpus.And(owned); !both.Empty() && both != owned {
			n.blame(p, "%s is bound to a NUMA node and owns %s", p.ref(), told.CPUs)
		}
	}
}

// dir is the cgroup of a container.
func (n *node) dir(p *pod, ref scenario.Ref) string {
	spec, ok := n.runtime.Spec(ref)
	if !ok {
		n.t.Fatalf("%s has no specification", ref)
	}
	dir, err := cgroup.Path("/"+n.runtime.PodDir(p.QoS, n.runtime.UID(p.ref())), spec.Linux.CgroupsPath)
	n.must("cgroup", err)
	return dir
}

// crash ends a container and creates it again, as a kubelet does after a crash.
func (n *node) crash(p *pod, c *scenario.Container) {
	ref := p.ref().In(c.Name)
	n.eye.stopped(n.dir(p, ref))
	delete(n.waiting, ref)
	n.must("remove container", n.runtime.RemoveContainer(n.t.Context(), ref))
	p.did("end of %s", ref.Container())
	n.create(p, *c)
	n.start(p, ref)
}

// end forgets what runs of a pod, which ends.
func (n *node) end(p *pod) {
	for _, c := range p.ctrs {
		ref := p.ref().In(c.Name)
		n.eye.stopped(n.dir(p, ref))
		delete(n.waiting, ref)
	}
	n.eye.gone(p.ref())
	p.stopped = true
}

func (n *node) stopPod(p *pod) {
	n.end(p)
	n.must("stop pod", n.runtime.StopPodSandbox(n.t.Context(), p.ref()))
}

func (n *node) remove(p *pod) {
	n.end(p)
	n.must("remove pod", n.runtime.RemovePodSandbox(n.t.Context(), p.ref()))
	n.pods = slices.DeleteFunc(n.pods, func(o *pod) bool { return o == p })
}

// reconfigure moves every pool.
func (n *node) reconfigure(overlap bool) {
	n.config.Placement.Reclaim = map[bool]string{true: "overlap", false: "leftover"}[overlap]
	n.must("reconfigure", n.agent.Reconfigure(n.config))
}

// audit reads all files, and holds what the agent says of owners against what
// the eye knows: nobody owns anything that nobody knows of.
func (n *node) audit() {
	n.eye.audit()
	told := map[scenario.Ref]topology.Set{}
	for _, g := range n.agent.Source().Status().CPUs.Grants {
		ids, err := topology.ParseList(g.CPUs)
		n.must("grants", err)
		namespace, name, _ := strings.Cut(g.Pod, "/")
		ref := scenario.PodRef(namespace, name)
		told[ref] = told[ref].Union(topology.SetOf(ids...))
	}
	for ref, cpus := range n.eye.grants() {
		if told[ref] != cpus {
			n.t.Errorf("%s owns %v, and the agent tells %v", ref, cpus.Members(), told[ref].Members())
		}
		delete(told, ref)
	}
	for ref, cpus := range told {
		if p := slices.IndexFunc(n.pods, func(p *pod) bool { return p.ref() == ref && !p.stopped }); p < 0 {
			n.t.Errorf("I4: %v are still owned by %s, which is gone", cpus.Members(), ref)
		}
	}
}

// emptied removes all, and has one pod own all CPUs there are: none is leaked.
func (n *node) emptied() {
	for len(n.pods) > 0 {
		n.remove(n.pods[0])
	}
	n.audit()
	p := n.make(kind{name: "last", level: "dedicated", milli: [2]int{253_000, 253_000}, owns: true})
	p.ctrs, p.cpus = p.ctrs[:1], 253
	n.must("run the last", n.runtime.RunPodSandbox(n.t.Context(), p.Pod, sim.SumResources(p.QoS, p.ctrs)))
	n.pods = append(n.pods, p)
	n.create(p, p.ctrs[0])
	n.start(p, p.ref().In("main"))
	if owned := n.eye.grants()[p.ref()].Len(); owned != 253 {
		n.t.Errorf("on an empty node one pod owns %d CPUs, want 253", owned)
	}
}
