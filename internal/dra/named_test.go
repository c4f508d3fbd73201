package dra

import (
	"errors"
	"io/fs"
	"reflect"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestClassDevices: the devices that name classes come from the kubelet's checkpoint alone, of each form that kubelets
// wrote, and stay while the checkpoint is missing or not valid.
func TestClassDevices(t *testing.T) {
	t.Parallel()
	const now = `[{"ClaimUID":"a","ClaimName":"gold","Namespace":"d","PodUIDs":{"p":{},"q":{}},"DriverState":{
		"x.example":{"Devices":[{"PoolName":"n","DeviceName":"c","RequestNames":["r"],"CDIDeviceIDs":["v.com/gpu=0","trimtab.io/class=shared"]}]}}},
		{"ClaimUID":"b","ClaimName":"web","Namespace":"d","PodUIDs":{"p":{}},"DriverState":{"x.example":{"Devices":[{"CDIDeviceIDs":["trimtab.io/pool=web"]}]}}}]`
	const old = `{"version":"v1","checksum":1,"entries":[{"ClaimUID":"a","ClaimName":"gold","Namespace":"d","PodUIDs":{"p":{}},"CDIDevices":{"x.example":["trimtab.io/class=shared"]}}]}`
	shared, web := lifecycle.ClaimedDevice{Device: "trimtab.io/class=shared", Claim: "d/gold"}, lifecycle.ClaimedDevice{Device: "trimtab.io/pool=web", Claim: "d/web"}
	text, failed := "", error(nil)
	s := New(Options{
		Devices: func() (map[string][]string, []string) {
			return map[string][]string{"trimtab.io/class=system": {"X=1"}}, nil
		},
		Checkpoint: "dra_manager_state",
		Read:       func(string) ([]byte, error) { return []byte(text), failed },
	})
	for _, c := range []struct {
		name, text string
		failed     error
		p, q       []lifecycle.ClaimedDevice
	}{
		{name: "no checkpoint", failed: fs.ErrNotExist},
		{name: "two claims", text: checkpointOf(now), p: []lifecycle.ClaimedDevice{shared, web}, q: []lifecycle.ClaimedDevice{shared}},
		{name: "missing", failed: fs.ErrNotExist, p: []lifecycle.ClaimedDevice{shared, web}, q: []lifecycle.ClaimedDevice{shared}},
		{name: "unreadable", failed: errors.New("EIO"), p: []lifecycle.ClaimedDevice{shared, web}, q: []lifecycle.ClaimedDevice{shared}},
		{name: "corrupt", text: checkpointOf(now)[1:], p: []lifecycle.ClaimedDevice{shared, web}, q: []lifecycle.ClaimedDevice{shared}},
		{name: "of an older kubelet", text: old, p: []lifecycle.ClaimedDevice{shared}},
		{name: "ended", text: checkpointOf("[]")},
	} {
		text, failed = c.text, c.failed
		s.ReadCheckpoint()
		if p, q := s.ClassDevices("p"), s.ClassDevices("q"); !reflect.DeepEqual(p, c.p) || !reflect.DeepEqual(q, c.q) {
			t.Errorf("%s: %v, %v", c.name, p, q)
		}
	}
}
