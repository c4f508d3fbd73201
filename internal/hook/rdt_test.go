package hook

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestRDT: the group of a class, a pod's own group, the runtime's class, which has priority, and no group
// if the node has no resctrl.
func TestRDT(t *testing.T) {
	h := RDT{Shares: ByClass[string]{BE: "L3 0-30"}, KernelSupport: lifecycle.Finding{Support: lifecycle.Supported}}
	measure := h
	measure.Measure = true
	none := h
	none.KernelSupport = lifecycle.Finding{Support: lifecycle.NotSupported, Why: "not there"}
	be := &intent.Pod{Class: intent.Sourced[intent.Class]{V: intent.Reclaimed, Key: intent.KoordQoSClass}}
	own, classed := *be, *be
	own.RDT = intent.Sourced[intent.RDTShares]{V: "MB 30", Key: intent.KoordResctrl}
	classed.RDT, classed.RDTClass = own.RDT, intent.Sourced[string]{V: "gold", Key: intent.TrimtabRDTClass}
	for _, c := range []struct {
		name, uid string
		p         *intent.Pod
		container string
		hook      RDT
		want      map[string]string
		problems  int
	}{
		{"class, pod", "u-1", be, "", h, map[string]string{"rdt.schemata trimtab-BE": "L3 0-30"}, 0},
		{"class", "u-1", be, "a", h, map[string]string{"rdt.group": "trimtab-BE"}, 0},
		{"own, pod", "u-1", &own, "", h, map[string]string{"rdt.schemata trimtab-u-1": "MB 30"}, 0},
		{"own", "u-1", &own, "a", h, map[string]string{"rdt.group": "trimtab-u-1"}, 0},
		{"own, odd UID", "../x", &own, "", h, map[string]string{}, 1},
		{"own, odd UID, container", "../x", &own, "a", h, map[string]string{}, 0},
		{"the runtime's class, pod", "u-1", &classed, "", h, map[string]string{}, 0},
		{"the runtime's class", "u-1", &classed, "a", h, map[string]string{"rdt.class": "gold"}, 0},
		{"no request", "u-1", &intent.Pod{}, "a", h, map[string]string{}, 0},
		{"measured", "u-1", &intent.Pod{}, "a", measure, map[string]string{"rdt.monitor": "/trimtab-u-1-a"}, 0},
		{"measured in its group", "u-1", be, "a", measure, map[string]string{"rdt.group": "trimtab-BE", "rdt.monitor": "trimtab-BE/trimtab-u-1-a"}, 0},
		{"no resctrl", "u-1", be, "a", none, map[string]string{}, 0},
		{"no resctrl, own", "u-1", &own, "", none, map[string]string{}, 1},
	} {
		in := &Input{Pod: &lifecycle.Pod{UID: c.uid}, Intent: c.p, Container: c.container}
		if diff := cmp.Diff(c.want, values(in, c.hook)); diff != "" {
			t.Error(c.name, diff)
		}
		var out Output
		c.hook.Propose(in, &out)
		if len(out.Problems) != c.problems {
			t.Errorf("%s: %v", c.name, out.Problems)
		}
	}
}
