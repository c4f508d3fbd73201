package intent

import (
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestClaimed: the agent reads the names in resource claims like annotations of the same kind. They have priority over
// annotations.
func TestClaimed(t *testing.T) {
	t.Parallel()
	const class, pool, balloon = lifecycle.ClassCDI + "=", lifecycle.PoolCDI + "=", lifecycle.BalloonCDI + "="
	for _, c := range []struct {
		name               string
		devices            []string
		annotations        map[string]string
		class              Class
		pool, balloon      string
		from, problem, not string
	}{
		{name: "nothing"},
		{name: "a class", devices: []string{class + "reclaimed"}, class: Reclaimed, from: "resource claim d/0"},
		{name: "the same twice", devices: []string{class + "shared", class + "shared"}, class: Shared, from: "resource claim d/0"},
		{name: "a pool", devices: []string{pool + "web"}, class: Shared, pool: "web", from: "resource claim d/0"},
		{name: "a pool and its class", devices: []string{pool + "web", class + "system"}, class: System, pool: "web", from: "resource claim d/1"},
		{name: "a balloon type", devices: []string{balloon + "fast"}, balloon: "fast"},
		{name: "a class over an annotation", devices: []string{class + "shared"}, annotations: map[string]string{KatalystQoSLevel: "reclaimed_cores"},
			class: Shared, from: "resource claim d/0", problem: "disagrees with resource claim d/0, which is shared"},
		{name: "an annotation that agrees", devices: []string{class + "reclaimed"}, annotations: map[string]string{KatalystQoSLevel: "reclaimed_cores"},
			class: Reclaimed, from: "resource claim d/0"},
		{name: "a balloon over an annotation", devices: []string{balloon + "fast"}, annotations: map[string]string{NRIBalloon + "/container.a": "slow"},
			balloon: "fast", problem: "resource claim d/0 names the balloon type fast and has priority"},
		{name: "a pool over an annotation", devices: []string{pool + "web"},
			annotations: map[string]string{KatalystQoSLevel: "shared_cores", KatalystCPU: `{"cpuset_pool":"db"}`},
			class:       Shared, pool: "web", from: "resource claim d/0", problem: "disagrees with resource claim d/0, which names the pool web"},
		{name: "no class", devices: []string{class + "LSR"}, problem: "want one of the classes dedicated, reclaimed, shared, system"},
		{name: "an empty class", devices: []string{class}, problem: "want one of the classes"},
		{name: "an empty pool", devices: []string{pool}, problem: "not the name of a pool: want up to 63"},
		{name: "a long balloon type", devices: []string{balloon + strings.Repeat("x", maxBalloonTypeName+1)}, problem: "not the name of a balloon type"},
		{name: "a pool of the agent", devices: []string{pool + "reclaim"}, problem: "the agent uses a pool of this name itself"},
		{name: "a pool of a class without", devices: []string{pool + "web", class + "dedicated"}, class: Dedicated, from: "resource claim d/1",
			problem: "only pods of the classes shared and system"},
		{name: "two that disagree", devices: []string{class + "shared", class + "reclaimed"}, problem: "the claims of the pod name different values, so the agent ignores all of them"},
		{name: "two that disagree, and an annotation", devices: []string{class + "shared", class + "dedicated"},
			annotations: map[string]string{KatalystQoSLevel: "reclaimed_cores"}, class: Reclaimed, from: KatalystQoSLevel, problem: "the agent ignores all of them"},
		{name: "a forged annotation", annotations: map[string]string{"cdi.k8s.io/x": class + "system", lifecycle.ClassCDI: "system"}},
	} {
		pod := &lifecycle.Pod{Namespace: "d", Annotations: c.annotations}
		for i, device := range c.devices {
			pod.Claimed = append(pod.Claimed, lifecycle.ClaimedDevice{Device: device, Claim: "d/" + string(rune('0'+i))})
		}
		got, said := Read(pod, nil, Dialects()), ""
		for _, q := range got.Problems {
			said += q.String() + "\n"
		}
		if got.Class.V != c.class || got.Class.Key != c.from || got.Pool.V != c.pool || got.Balloon.V.Of("a").V != c.balloon ||
			!strings.Contains(said, c.problem) || (c.problem == "") != (said == "") {
			t.Errorf("%s: %+v, pool %+v, balloon %+v, problems %q", c.name, got.Class, got.Pool, got.Balloon, said)
		}
	}
}
