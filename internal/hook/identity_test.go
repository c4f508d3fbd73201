package hook

import (
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestGroupIdentity is the BVT table of Koordinator 1.7, and our fallbacks.
func TestGroupIdentity(t *testing.T) {
	pod := func(c intent.Class, q intent.QoS) *intent.Pod {
		p := &intent.Pod{QoS: q}
		p.Class = intent.Sourced[intent.Class]{V: c, Key: intent.KoordQoSClass}
		return p
	}
	own := func(q intent.CPUQoS) *intent.Pod {
		p := pod(intent.Shared, intent.Burstable)
		p.ClassName = "LS"
		p.CPUQoS = intent.Sourced[intent.CPUQoS]{V: q, Key: intent.KoordCPUQoS}
		return p
	}
	bvt := func(v string) map[string]string { return map[string]string{"unified cpu.bvt_warp_ns": v} }
	all, noLSR := GroupIdentity{LSR: 2, LS: 2, BE: -1}, GroupIdentity{LS: 2, BE: -1}
	idle, weight, lacks := all, all, all
	lacks.KernelSupport = lifecycle.NotSupported
	idle.KernelSupport, idle.Fallback = lifecycle.NotSupported, YieldIdle
	weight.KernelSupport, weight.Fallback = lifecycle.NotSupported, YieldWeight
	for _, c := range []struct {
		name string
		hook GroupIdentity
		pod  *intent.Pod
		want map[string]string
	}{
		{"LSR", all, pod(intent.Dedicated, intent.Guaranteed), bvt("2")},
		{"LS", all, pod(intent.Shared, intent.Burstable), bvt("2")},
		{"BE", all, pod(intent.Reclaimed, intent.BestEffort), bvt("-1")},
		{"none, Guaranteed", all, pod(intent.None, intent.Guaranteed), bvt("2")},
		{"none, Guaranteed, LSR off", noLSR, pod(intent.None, intent.Guaranteed), bvt("2")},
		{"LSR off", noLSR, pod(intent.Dedicated, intent.Guaranteed), bvt("0")},
		{"none, all but BE off", GroupIdentity{BE: -1}, pod(intent.None, intent.Guaranteed), bvt("0")},
		{"none, BestEffort", all, pod(intent.None, intent.BestEffort), bvt("-1")},
		{"all off", GroupIdentity{}, pod(intent.Reclaimed, intent.BestEffort), bvt("0")},
		{"own -1", all, own(intent.CPUQoS{Enabled: true, Identity: lifecycle.Some(-1)}), bvt("-1")},
		{"own, class's value", all, own(intent.CPUQoS{Enabled: true}), bvt("2")},
		{"own, off", all, own(intent.CPUQoS{}), bvt("0")},
		{"own, malformed", all, own(intent.CPUQoS{Malformed: true}), map[string]string{}},
		{"no bvt", lacks, pod(intent.Reclaimed, intent.BestEffort), map[string]string{}},
		{"no bvt, idle", idle, pod(intent.Reclaimed, intent.BestEffort), map[string]string{"unified cpu.idle": "1"}},
		{"no bvt, idle, LS", idle, pod(intent.Shared, intent.Burstable), map[string]string{}},
		{"no bvt, weight", weight, pod(intent.Reclaimed, intent.Burstable), map[string]string{"cpu.shares": "2"}},
		{"no bvt, weight, batch", weight, batchPod(map[string]intent.Batch{"a": {}}), map[string]string{}},
	} {
		if diff := cmp.Diff(c.want, values(&Input{Intent: c.pod}, c.hook)); diff != "" {
			t.Error(c.name, diff)
		}
		if got := values(&Input{Intent: c.pod, Container: "a"}, c.hook); len(got) > 0 {
			t.Errorf("%s: a container is given %v", c.name, got)
		}
	}
	var out Output
	lacks.Propose(&Input{Intent: own(intent.CPUQoS{Enabled: true})}, &out)
	if len(out.Problems) != 1 {
		t.Errorf("a wish that cannot be met is not reported: %v", out.Problems)
	}
}

// TestIdentityWithoutKernel judges the hook with the configured fallback, on a kernel that has
// cpu.idle and no group identities.
func TestIdentityWithoutKernel(t *testing.T) {
	probe := func(feature string) lifecycle.Finding {
		if feature == bvtFile {
			return lifecycle.Finding{Support: lifecycle.NotSupported, Why: "no bvt"}
		}
		return lifecycle.Finding{Support: lifecycle.Supported}
	}
	for fallback, want := range map[string]lifecycle.Finding{
		"none":   {Support: lifecycle.NotSupported, Why: "no bvt; hooks.groupIdentity.fallback: idle uses cpu.idle instead"},
		"idle":   {Support: lifecycle.Supported},
		"weight": {Support: lifecycle.Supported},
	} {
		o := Options{GroupIdentity: GroupIdentityOptions{Enabled: true, Fallback: fallback}}
		infos := o.Catalogue()
		i := slices.IndexFunc(infos, func(i Info) bool { return i.Name == "groupIdentity" })
		if diff := cmp.Diff(want, infos[i].FeatureSupport(probe)); diff != "" {
			t.Error(fallback, diff)
		}
	}
}

// TestFeatureSupport combines the answers about single features.
func TestFeatureSupport(t *testing.T) {
	probe := func(feature string) lifecycle.Finding {
		return map[string]lifecycle.Finding{
			"yes": {Support: lifecycle.Supported}, "no": {Support: lifecycle.NotSupported, Why: "no"}, "who knows": {Why: "dark"},
		}[feature]
	}
	for _, c := range []struct {
		needs []string
		want  lifecycle.Finding
	}{
		{nil, lifecycle.Finding{Support: lifecycle.Supported}},
		{[]string{"yes", "no|yes"}, lifecycle.Finding{Support: lifecycle.Supported}},
		{[]string{"yes", "no"}, lifecycle.Finding{Support: lifecycle.NotSupported, Why: "no"}},
		{[]string{"who knows", "no"}, lifecycle.Finding{Support: lifecycle.NotSupported, Why: "no"}},
		{[]string{"who knows", "yes"}, lifecycle.Finding{Why: "dark"}},
		{[]string{"no|who knows"}, lifecycle.Finding{Why: "no; dark"}},
	} {
		if diff := cmp.Diff(c.want, (Info{KernelFeatures: c.needs}).FeatureSupport(probe)); diff != "" {
			t.Error(c.needs, diff)
		}
	}
}
