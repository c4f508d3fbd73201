package facts

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/conductor/route"
	"github.com/trimtab/trimtab/internal/engine"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/claims"
	"github.com/trimtab/trimtab/internal/placement/none"
)

// claimSource has claims for CPUs by their devices, and what claims name by pod.
type claimSource struct {
	uses  map[string]bool
	named map[string][]lifecycle.ClaimedDevice
}

const cpuDevice = "dra.k8s.io/cpu=claim-"

func (*claimSource) MayGiveCPUs(ctr *lifecycle.Container) bool {
	return slices.ContainsFunc(ctr.CDIDevices, func(name string) bool { return strings.HasPrefix(name, cpuDevice) })
}
func (*claimSource) Refresh(context.Context, []string) {}
func (*claimSource) ReadCheckpoint()                   {}
func (s *claimSource) HasCPUClaims(uid string) bool    { return s.uses[uid] }

func (s *claimSource) ClassDevices(uid string) []lifecycle.ClaimedDevice { return s.named[uid] }

func (*claimSource) ForContainer(_ string, ctr *lifecycle.Container) *lifecycle.ClaimGrant {
	g := &lifecycle.ClaimGrant{}
	for _, name := range ctr.CDIDevices {
		if uid, is := strings.CutPrefix(name, cpuDevice); is {
			g.Claims = append(g.Claims, lifecycle.Claim{UID: uid, Device: name, CPUs: []int{1}})
		}
	}
	return g
}

// reported is a kubelet that answers when it is asked.
type reported struct {
	devices map[string][]string // by container
	asked   int
	wanted  int // how many pods' grants were requested
	known   bool
}

func (r *reported) Await(context.Context, ...*lifecycle.Pod) { r.asked, r.known = r.asked+1, true }
func (*reported) Invalidate(*lifecycle.Pod)                  {}

func (r *reported) Granted(p *lifecycle.Pod) *lifecycle.KubeletGrants {
	r.wanted++
	return r.Known(p.UID)
}

func (r *reported) Known(uid string) *lifecycle.KubeletGrants {
	if !r.known {
		return nil
	}
	g := &lifecycle.KubeletGrants{UID: uid, Containers: map[string]lifecycle.DeviceGrant{}}
	for name, cdi := range r.devices {
		g.Containers[name] = lifecycle.DeviceGrant{CDI: cdi}
	}
	return g
}

// TestClaimsOfPodResources: a container whose request shows no devices has the claims that the kubelet reports. Only
// containers of pods with claims wait for the kubelet, and devices in which the two differ are a problem.
func TestClaimsOfPodResources(t *testing.T) {
	t.Parallel()
	const one, two = cpuDevice + "one", cpuDevice + "two"
	for _, c := range []struct {
		name               string
		uses, known, agent bool
		requested, kubelet []string
		asked              int
		claims             string
		problem            string
	}{
		{name: "the request alone", uses: true, requested: []string{one}, claims: "one"},
		{name: "the kubelet alone", uses: true, kubelet: []string{one}, asked: 1, claims: "one"},
		{name: "both", uses: true, known: true, requested: []string{one}, kubelet: []string{one}, claims: "one"},
		{name: "they differ", uses: true, known: true, requested: []string{one}, kubelet: []string{two, one}, claims: "one", problem: two},
		{name: "the request has another device", uses: true, known: true, requested: []string{one, "v.com/gpu=0"}, kubelet: []string{one, "v.com/nic=1"}, claims: "one"},
		{name: "a pod without claims", kubelet: []string{one}},
		{name: "another authority", uses: true, agent: true, kubelet: []string{one}},
	} {
		n, o := newNode(t)
		if !c.agent {
			n.state.Policy.Placement, n.state.Policy.PlacementOn = claims.Policy{Policy: none.Policy{}}, true
		}
		from := &reported{devices: map[string][]string{"a": c.kubelet}, known: c.known}
		o.Claims, o.Grants = &claimSource{uses: map[string]bool{"u": c.uses}}, from
		pod := &lifecycle.Pod{ID: "p", UID: "u", Namespace: "d", Name: "p"}
		n.decide(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod})
		g := New(o)
		ev := lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "c", PodID: "p", Name: "a", CDIDevices: c.requested}}
		_, done, err := g.Gather(t.Context(), &route.Capabilities{}, &ev)
		if err != nil {
			t.Fatal(err)
		}
		var f engine.Facts
		g.Read(&route.Capabilities{}, &ev, &f)
		done()
		got, said := "", ""
		if of := f.Claims["c"]; of != nil {
			for _, one := range of.Claims {
				got += one.UID
			}
			for _, q := range of.Problems {
				said += q.Value
			}
		}
		if got != c.claims || said != c.problem || from.asked != c.asked {
			t.Errorf("%s: claims %q, problems %q, the kubelet was asked %d times", c.name, got, said, from.asked)
		}
	}
}

// TestClaimsReportedLater: when the kubelet's answer comes after a container's creation, the container gets its claims.
func TestClaimsReportedLater(t *testing.T) {
	t.Parallel()
	n, o := newNode(t)
	n.state.Policy.Placement, n.state.Policy.PlacementOn = claims.Policy{Policy: none.Policy{}}, true
	from := &reported{devices: map[string][]string{"a": {cpuDevice + "one"}}}
	o.Claims, o.Grants = &claimSource{uses: map[string]bool{"u": true}}, from
	pod := &lifecycle.Pod{ID: "p", UID: "u", Namespace: "d", Name: "p"}
	n.decide(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: &lifecycle.Container{ID: "c", PodID: "p", Name: "a"}})
	from.known = true
	for range 2 { // the second answer changes nothing
		ev := lifecycle.Event{Kind: lifecycle.Inform, Pod: pod}
		var f engine.Facts
		New(o).Read(&route.Capabilities{}, &ev, &f)
		n.state.Commit(engine.Decide(n.state, &ev, f))
		if got := n.state.Machine.Format(n.state.Container("c").Assignment.Owned); got != "1" {
			t.Fatalf("it owns %q", got)
		}
	}
	ev := lifecycle.Event{Kind: lifecycle.Inform, Pod: pod}
	var f engine.Facts
	New(o).Read(&route.Capabilities{}, &ev, &f)
	if len(f.Claims) > 0 {
		t.Errorf("it is told again: %v", f.Claims)
	}
}

// TestNamedStays: what claims name stays with a pod while the kubelet's checkpoint has lost it, also over a restart, by
// the records of its containers.
func TestNamedStays(t *testing.T) {
	t.Parallel()
	n, o := newNode(t)
	device := lifecycle.ClaimedDevice{Device: lifecycle.ClassCDI + "=reclaimed", Claim: "d/cheap"}
	from := &claimSource{named: map[string][]lifecycle.ClaimedDevice{"u": {device}}}
	o.Claims = from
	claimed := func(ev lifecycle.Event) []lifecycle.ClaimedDevice {
		var f engine.Facts
		New(o).Read(&route.Capabilities{}, &ev, &f)
		n.state.Commit(engine.Decide(n.state, &ev, f))
		return n.state.Pod("p").Pod.Claimed
	}
	pod := func() *lifecycle.Pod { return &lifecycle.Pod{ID: "p", UID: "u", Namespace: "d", Name: "p"} }
	if got := claimed(lifecycle.Event{Kind: lifecycle.RunPodSandbox, Pod: pod()}); !slices.Equal(got, []lifecycle.ClaimedDevice{device}) {
		t.Fatalf("it has %v", got)
	}
	ctr := &lifecycle.Container{ID: "c", PodID: "p", Name: "a"}
	claimed(lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod(), Container: ctr})
	if got := n.state.Container("c").ClaimDevices; !slices.Equal(got, []string{device.Device}) {
		t.Errorf("its record has %q", got)
	}
	from.named = nil
	if got := claimed(lifecycle.Event{Kind: lifecycle.UpdatePodSandbox, Pod: pod()}); !slices.Equal(got, []lifecycle.ClaimedDevice{device}) {
		t.Errorf("after an update it has %v", got)
	}
	r := lifecycle.Record{Version: lifecycle.RecordVersion, RecordFields: lifecycle.RecordFields{ClaimDevices: []string{device.Device}}}
	text, _ := o.Signer.Stamp("u", "a", r)
	n.state = engine.NewState(n.state.Machine, n.state.Policy)
	ctr.Annotations = map[string]string{"trimtab.io/record": text}
	if got := claimed(lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{pod()}, Containers: []*lifecycle.Container{ctr}}); len(got) != 1 || got[0].Device != device.Device {
		t.Errorf("after a restart it has %v", got)
	}
}

// TestGrantsNotWanted: a pod whose decision depends on no grants does not have the kubelet asked.
func TestGrantsNotWanted(t *testing.T) {
	t.Parallel()
	for annotation, want := range map[string]int{"example.com/other": 0, intent.KoordDevices: 1} {
		_, o := newNode(t)
		from := &reported{}
		o.Grants = from
		ev := lifecycle.Event{Kind: lifecycle.Synchronize, Pods: []*lifecycle.Pod{{ID: "p", UID: "u", Annotations: map[string]string{annotation: "{}"}}}}
		var f engine.Facts
		New(o).Read(&route.Capabilities{}, &ev, &f)
		if from.wanted != want {
			t.Errorf("%s: requested the grants of %d pods, want %d", annotation, from.wanted, want)
		}
	}
}
