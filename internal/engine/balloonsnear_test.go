package engine

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/placement/balloons"
	"github.com/trimtab/trimtab/internal/topology"
)

const nearTPU = "podresourceapi:tech.com/*"

// grantsOf are facts in which the kubelet granted a device of tech.com/tpu on a NUMA node, -1 for none, to a pod's container.
func grantsOf(pod *lifecycle.Pod, node int) Facts {
	if node < 0 {
		return Facts{}
	}
	g := lifecycle.DeviceGrant{IDs: map[string][]string{"tech.com/tpu": {"0"}}, NUMA: map[string][]int{"tech.com/tpu": {node}}}
	all := &lifecycle.KubeletGrants{UID: pod.UID, Namespace: pod.Namespace, Name: pod.Name, Containers: map[string]lifecycle.DeviceGrant{"main": g}}
	return Facts{Granted: map[string]*lifecycle.KubeletGrants{pod.UID: all}}
}

// TestBalloonsNearGranted: in any history, a balloon that is not short of CPUs near the devices of its containers
// gets there what they request; what the layout keeps is what follows from the containers.
func TestBalloonsNearGranted(t *testing.T) {
	t.Parallel()
	m, p := balloonsPolicy(t, "2s x 2n x 4c x 2t", balloons.PolicyOptions{BalloonTypes: []balloons.TypeOptions{
		{Name: "one", Namespaces: []string{"one"}, MaxBalloons: 1, PreferCloseToDevices: []string{nearTPU}},
		{Name: "leaf", PreferCloseToDevices: []string{"/sys/devices/system/node/node3", nearTPU}},
		{Name: "two", Namespaces: []string{"two"}, Components: []balloons.ComponentOptions{{BalloonType: "leaf"}, {BalloonType: "one"}}},
	}})
	rapid.Check(t, func(t *rapid.T) {
		s, pods := NewState(m, p), map[int]*lifecycle.Pod{}
		for n := range rapid.IntRange(1, 30).Draw(t, "events") {
			var ev *lifecycle.Event
			facts := Facts{}
			if len(pods) > 0 && rapid.IntRange(0, 2).Draw(t, "ends") == 0 {
				i := rapid.SampledFrom(slices.Sorted(maps.Keys(pods))).Draw(t, "which")
				ev = &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pods[i]}
				delete(pods, i)
			} else {
				pod, c := balloonPod(n, rapid.SampledFrom([]string{"one", "two", "other"}).Draw(t, "namespace"), "a", rapid.SampledFrom([]int64{0, 500, 1000, 2500}).Draw(t, "milli"))
				ev, pods[n] = &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, pod
				facts = grantsOf(pod, rapid.IntRange(-1, 3).Draw(t, "node"))
			}
			plan, was := Decide(s, ev, facts), s.layout
			s.Commit(plan)
			checkDerived(t, was, s)
		}
	})
}

// TestNearGranted: each place of devices gets what is requested there, also when a balloon deflates; a device of
// another resource, or with an unknown place, does not count; the reason says which.
func TestNearGranted(t *testing.T) {
	t.Parallel()
	m, p := balloonsPolicy(t, "2s x 2n x 4c x 2t", balloons.PolicyOptions{BalloonTypes: []balloons.TypeOptions{
		{Name: "one", Namespaces: []string{"one"}, MaxBalloons: 1, PreferCloseToDevices: []string{nearTPU}},
		{Name: "nic", Namespaces: []string{"nic"}, PreferCloseToDevices: []string{"podresourceapi:example.com/nic"}},
	}})
	s, pods := NewState(m, p), map[int]*lifecycle.Pod{}
	run := func(n, node int, namespace string, milli int64) *Container {
		pod, c := balloonPod(n, namespace, "a", milli)
		pods[n] = pod
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, grantsOf(pod, node)))
		return s.Container(c.ID)
	}
	on := func(node int) int { return s.BalloonCPUs("one[0]").And(m.Nodes[node].CPUs).Len() }
	want := func(what string, counts ...int) {
		t.Helper()
		if got := []int{on(0), on(1), on(2), on(3)}; !slices.Equal(got, counts) {
			t.Errorf("%s: %v CPUs of the nodes, want %v", what, got, counts)
		}
	}
	first := run(1, 3, "one", 2000)
	want("the first", 0, 0, 0, 2)
	if !strings.Contains(first.Assignment.Why, "the balloon prefers CPUs "+m.Format(m.Nodes[3].CPUs)+", near tech.com/tpu") {
		t.Errorf("the reason is %q", first.Assignment.Why)
	}
	run(2, 2, "one", 3000)
	want("the second", 0, 0, 3, 2)
	run(3, 3, "one", 1000)
	want("the third, where the first one is", 0, 0, 3, 3)
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.RemovePodSandbox, Pod: pods[2]}, Facts{}))
	want("without the second", 0, 0, 0, 3)
	run(4, 3, "one", 9000)
	want("more than the node has, so the wish does not count", 0, 0, 8, 4)
	other := run(5, 3, "nic", 500)
	if len(other.Assignment.Devices) > 0 || !strings.Contains(other.Assignment.Why, "no device of podresourceapi:example.com/nic whose nearest CPUs are known") {
		t.Errorf("a device of another resource: %q", other.Assignment.Why)
	}
}

// TestLateGrants: grants that the kubelet reports after a creation count when the balloon inflates; nothing moves.
func TestLateGrants(t *testing.T) {
	t.Parallel()
	m, p := balloonsPolicy(t, "2s x 2n x 4c x 2t", balloons.PolicyOptions{BalloonTypes: []balloons.TypeOptions{
		{Name: "one", Namespaces: []string{"one"}, MaxBalloons: 1, PreferCloseToDevices: []string{nearTPU}},
	}})
	s := NewState(m, p)
	pod, c := balloonPod(1, "one", "a", 1000)
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
	had := s.BalloonCPUs("one[0]")
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.Inform, Pod: pod}, grantsOf(pod, 3)))
	if now := s.BalloonCPUs("one[0]"); now != had || len(s.Container(c.ID).Assignment.Devices) != 1 {
		t.Errorf("%s after the grant, %s before; %v", m.Format(now), m.Format(had), s.Container(c.ID).Assignment)
	}
	pod, c = balloonPod(2, "one", "a", 1000)
	s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, Facts{}))
	if more := s.BalloonCPUs("one[0]").Minus(had); more.Len() != 1 || !m.Nodes[3].CPUs.Contains(more) {
		t.Errorf("it inflates by %s", m.Format(more))
	}
}

// TestNearByNodes: a resource without NUMA nodes is where the container's device nodes are.
func TestNearByNodes(t *testing.T) {
	t.Parallel()
	m, p := balloonsPolicy(t, "2s x 2n x 4c x 2t", balloons.PolicyOptions{})
	m.Devices = []topology.Device{{Address: "0000:3b:00.0", Node: 2, Numbers: []string{"195:0"}}}
	p.Placement = balloons.New(m, p.Placement.(*balloons.Policy).Pick, balloons.PolicyOptions{PinCPU: true, BalloonTypes: []balloons.TypeOptions{
		{Name: "one", Namespaces: []string{"one"}, PreferCloseToDevices: []string{"podresourceapi:x.com/gpu"}},
	}})
	for granted, node := range map[string]bool{"x.com/gpu": true, "x.com/other": false} {
		s := NewState(m, p)
		pod, c := balloonPod(1, "one", "a", 1000)
		c.Devices = []lifecycle.Device{{Path: "/dev/gpu0", Type: "c", Major: 195}}
		facts := grantsOf(pod, 0)
		facts.Granted[pod.UID].Containers["main"] = lifecycle.DeviceGrant{IDs: map[string][]string{granted: {"0"}}}
		s.Commit(Decide(s, &lifecycle.Event{Kind: lifecycle.CreateContainer, Pod: pod, Container: c}, facts))
		if got := m.Nodes[2].CPUs.Contains(s.BalloonCPUs("one[0]")); got != node {
			t.Errorf("%s: %s, %s", granted, m.Format(s.BalloonCPUs("one[0]")), s.Container(c.ID).Assignment.Why)
		}
	}
}
