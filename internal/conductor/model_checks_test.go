package conductor_test

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/conductor"
	"github.com/trimtab/trimtab/internal/intent"
	"github.com/trimtab/trimtab/internal/lifecycle"
	"github.com/trimtab/trimtab/internal/nodeview"
	"github.com/trimtab/trimtab/internal/topology"
)

// checkQuotas checks that quotas are scaled once from the request, whatever happened in
// between. It computes them independently.
func (mo *model) checkQuotas(when string) {
	if mo.dress != nil {
		return // pods with owned CPUs and a lifted quota are not checked here
	}
	for _, c := range mo.live() {
		class := c.pod.Labels["koordinator.sh/qosClass"]
		_, assigned := c.pod.Annotations[intent.KoordResourceStatus]
		if !c.started || c.asked.CPU.Quota.V == 0 || assigned || (class != "" && class != "LS" && class != "nonsense") {
			continue
		}
		want := c.asked.CPU.Quota.V
		if mo.ratio > 100 {
			want = int64(math.Ceil(float64(want) * 100 / float64(mo.ratio)))
		}
		quota, _, err := (&cgroup.Tree{FS: mo.kernel, Version: mo.version}).ReadBandwidth(c.dir())
		must(err)
		mo.checkBurst(when, c, want)
		if quota != fmt.Sprint(want) {
			mo.wrong("I4: %s: %s asked for a quota of %d at ratio %s and has %s, wanted %d", when, c.ID, c.asked.CPU.Quota.V, mo.ratio, quota, want)
		}
	}
}

// silent checks I5: the pod asked for nothing, so it may only lose CPUs that others own.
func (mo *model) silent(c *modelCtr, ans conductor.Answer) {
	if mo.liar != nil || mo.dress != nil || len(c.pod.Labels)+len(c.pod.Annotations) > 0 || mo.policy.Pools.UnlabelledShared || mo.ratio > 100 {
		return
	}
	owned := len(nodeview.Status(mo.con).CPUs.Grants) > 0
	for _, v := range ans.Values {
		if v.Field == lifecycle.Annotation || (owned && v.Field == lifecycle.CPUSetCPUs) {
			if owned {
				continue
			}
		}
		mo.wrong("I5: %s has no intent and was given %s %s", c.ID, v.Field, v)
	}
}

// checkExclusive checks I1 and I2 on the kernel's files. A container owns its assigned CPUs if
// the kernel shows exactly those after its start.
func (mo *model) checkExclusive(when string) {
	if mo.foreign {
		return
	}
	all := mo.live()
	for _, owner := range all {
		if !owner.started || owner.pod.asked == "" || mo.effective(owner) != canonical(owner.pod.asked) {
			continue
		}
		if mo.taking != nil && mo.taking[owner.dir()] != canonical(owner.pod.asked) {
			continue
		}
		own := idsOf(owner.pod.asked)
		for _, c := range all {
			cpus := mo.effective(c)
			// Nothing runs yet in a cgroup that the runtime is still setting up. After two
			// failed creations its spec has no cpuset.
			if c.pod == owner.pod || cpus == "" || !c.started || !mo.owns(owner) {
				continue
			}
			if shared := intersect(own, idsOf(cpus)); len(shared) > 0 {
				mo.wrong("I1: %s: %s has CPUs %v of %s", when, c.ID, shared, owner.ID)
			}
		}
	}
	if mo.dress != nil {
		mo.checkGrants(when, all)
	}
	for _, c := range all {
		if c.started && mo.effective(c) == "" {
			mo.wrong("I2: %s: %s has no CPU", when, c.ID)
		}
		if c.mems != "" && mo.memory(c) != c.mems {
			mo.wrong("I4: %s: %s started with the memory of %s and has that of %s", when, c.ID, c.mems, mo.memory(c))
		}
	}
}

func (mo *model) owns(c *modelCtr) bool {
	grant := "default/" + c.pod.Name + "/" + c.Name + " " + canonical(c.pod.asked)
	return mo.grants()[grant] && !mo.another(c, grant)
}

// another reports whether a grant belongs to a container of the same name that is being
// created, and not to this one.
func (mo *model) another(c *modelCtr, grant string) bool {
	return mo.creating != nil && mo.creating.pod == c.pod && mo.creating.Name == c.Name && !mo.granted[grant]
}

// checkBurst checks that a container starts with its pod's burst, and never has one above its
// quota. A burst that a larger quota allows comes later.
func (mo *model) checkBurst(when string, c *modelCtr, quota int64) {
	want := int64(0)
	if c.pod.Annotations[intent.RubikBurst] == fmt.Sprint(burst) {
		want = min(burst, quota)
	}
	text, err := (&cgroup.Tree{FS: mo.kernel, Version: mo.version}).Read(c.dir(), lifecycle.Unified, "cpu.max.burst")
	must(err)
	got, err := strconv.ParseInt(text, 10, 64)
	must(err)
	// A proxy's runtime ignores it in version 1, so it is written after the start.
	starts := strings.HasPrefix(when, "at the first") && (!mo.proxied || mo.version == cgroup.V2)
	if got > want || starts && got != want {
		mo.wrong("I3: %s: %s has a burst of %d at a quota of %d, wanted %d", when, c.ID, got, quota, want)
	}
}

// checkValues checks I3: the kernel has the values that explain reports as applied.
func (mo *model) checkValues(c *modelCtr) {
	found, _ := nodeview.Explain(mo.con, "default", c.pod.Name, c.Name)
	tree := &cgroup.Tree{FS: mo.kernel, Version: mo.version}
	for _, e := range found {
		if e.ID != c.ID {
			continue
		}
		for _, v := range e.Values {
			var f lifecycle.Field
			if f.UnmarshalText([]byte(v.Field)) != nil || f > lifecycle.MemoryLimit {
				continue
			}
			value := lifecycle.Value{Field: f, Text: v.Value}
			if f.IsNumeric() {
				value.Text = ""
				fmt.Sscan(v.Value, &value.Int)
			}
			want, err := (&cgroup.Tree{Version: mo.version}).Resolve("a", value.Field, value.Key).Encode(value)
			must(err)
			got, err := tree.Read(c.dir(), f, "")
			must(err)
			if v.Applied && !(&cgroup.Tree{}).Resolve("a", f, "").Same(got, want) {
				mo.wrong("I3: explain says %s of %s is %s (%s); the kernel says %s", f, c.ID, v.Value, v.Channel, got)
			}
			if !v.Applied && v.Note == "" {
				mo.wrong("I3: %s of %s is not applied, and nothing says why", f, c.ID)
			}
		}
	}
}

// checkFree checks that CPUs of pods that ended are free again.
func (mo *model) checkFree() {
	for _, g := range nodeview.Status(mo.con).CPUs.Grants {
		for _, p := range mo.pods {
			if p.stopped && g.Pod == "default/"+p.Name {
				mo.wrong("I4: %s ended and still owns CPUs %s", g.Pod, g.CPUs)
			}
		}
	}
}

func idsOf(list string) []int {
	ids, err := topology.ParseList(list)
	must(err)
	return ids
}

func canonical(list string) string { return topology.FormatList(idsOf(list)) }

func intersect(a, b []int) []int {
	var out []int
	for _, x := range a {
		if slices.Contains(b, x) {
			out = append(out, x)
		}
	}
	return out
}

// reserved is the CPU that is reserved for the system if pools are used.
func (mo *model) reserved() topology.Set { return mo.machine.OnlineCPUs([]int{mo.first}) }
