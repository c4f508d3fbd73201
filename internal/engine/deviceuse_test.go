package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestDeviceUses: each device counts once, whatever names it has, and has one owner; a device that the specifications
// lost is still its owner's; kinds that containers cannot have alone do not count.
func TestDeviceUses(t *testing.T) {
	s := giving(node(t))
	all := []lifecycle.NodeDevice{
		{Name: "v.com/gpu=0", Nodes: []lifecycle.Device{char(0)}}, {Name: "v.com/gpu=1", Nodes: []lifecycle.Device{char(1)}}, {Name: "v.com/gpu=2", Nodes: []lifecycle.Device{char(2)}},
		{Name: "v.com/gpu=GPU-aa", Nodes: []lifecycle.Device{char(0)}}, {Name: "v.com/gpu=all", Nodes: []lifecycle.Device{char(0), char(1), char(2)}},
		{Name: "v.com/nic=lost"}, {Name: "other.com/disk=0"},
	}
	f := Facts{NodeDevices: all}
	s.Commit(Decide(s, creation(deviceAsker("named", `{"a":{"v.com/gpu":"GPU-aa","v.com/nic":"lost"}}`), "c", "a"), f))
	ev := creation(deviceAsker("claims", ""), "asked", "a")
	ev.Container.CDIDevices = []string{"v.com/gpu=2"}
	s.Commit(Decide(s, ev, f))
	all[5].Name = "v.com/nic=new"
	want := []DeviceUse{
		{Name: "v.com/gpu=0", Owner: "d/named/a"}, {Name: "v.com/gpu=1"}, {Name: "v.com/gpu=2", Owner: "d/claims/a"},
		{Name: "v.com/nic=lost", Owner: "d/named/a", NotInSpecs: true}, {Name: "v.com/nic=new"},
	}
	if diff := cmp.Diff(want, s.DeviceUses(all)); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
