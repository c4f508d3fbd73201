package real_test

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/real"
)

var (
	benchRounds   = flag.Int("bench.rounds", 40, "number of pods that each arm of the benchmark creates")
	benchExisting = flag.Int("bench.existing", 10, "number of containers that run before")
)

// benchBudget bounds the time of the rounds; then the results so far are printed.
const benchBudget = 3 * time.Minute

// arm is one runtime of the benchmark, with or without an agent.
type arm struct {
	name         string
	c            *real.Containerd
	create, live map[string][]time.Duration // by class
}

// BenchmarkCreateContainer measures CRI CreateContainer on a real containerd with Trimtab and without any plugin. Three
// runtimes run at once and create the same containers in turn, in changing order. Two have no plugin, and the
// difference of these two is noise. Every container requests something. One of ten pods owns a CPU, which leaves the
// other cpusets of its runtime. The report also has StartContainer, where Trimtab confirms the values.
func BenchmarkCreateContainer(b *testing.B) {
	benchCreations(b, 10, func(c *real.Containerd) {
		for i := range *benchExisting {
			c.RunContainer(c.RunPod(benchPod(i, 1+i%8)), real.ContainerSpec{Name: "app-0"})
		}
	})
}

// BenchmarkShrink measures creations that take a CPU from a hundred containers. These get it back when the pod is
// removed.
func BenchmarkShrink(b *testing.B) {
	benchCreations(b, 1, func(c *real.Containerd) {
		for i := range 20 {
			pod := c.RunPod(plain(fmt.Sprint("crowd-", i), "LS"))
			for k := range 5 {
				c.RunContainer(pod, real.ContainerSpec{Name: fmt.Sprint("app-", k)})
			}
		}
	})
}

// benchCreations runs a benchmark in which one of owners pods owns a CPU.
func benchCreations(b *testing.B, owners int, before func(*real.Containerd)) {
	b.Helper()
	arms := []*arm{{name: "no plugin"}, {name: "no plugin again"}, {name: "trimtab"}}
	for _, a := range arms {
		a.c = real.Start(b)
		a.create, a.live = map[string][]time.Duration{}, map[string][]time.Duration{}
		before(a.c)
		if a.name == "trimtab" {
			startTrimtab(b, a.c, "")
		}
	}
	const warmUp = 2
	begin := time.Now()
	for round := range *benchRounds + warmUp {
		if time.Since(begin) > benchBudget {
			break // the machine is busy with other work
		}
		for i := range arms {
			arms[(round+i)%len(arms)].round(round, round%owners == 0, round >= warmUp)
		}
	}
	report(b, arms)
}

// perPod is the number of containers of a sharing pod. There are several because making a pod takes far longer.
const perPod = 5

// round creates and starts the containers of one pod, one after another, and removes them.
func (a *arm) round(round int, owns, counts bool) {
	class, n, spec, as := "shares", perPod, real.ContainerSpec{}, benchPod(1000+round, round)
	if owns {
		class, n, spec.Resources, as = "owns a CPU", 1, oneCPU, owning(fmt.Sprintf("bench-%d", 1000+round), "1")
	}
	pod := a.c.RunPod(as)
	for i := range n {
		spec.Name = fmt.Sprintf("app-%d", i)
		begin := time.Now()
		id := a.c.CreateContainer(pod, spec)
		create := time.Since(begin)
		begin = time.Now()
		a.c.StartContainer(id)
		if counts {
			a.create[class], a.live[class] = append(a.create[class], create), append(a.live[class], time.Since(begin))
		}
	}
	a.c.RemovePod(pod)
}

// benchPod returns a pod of class LS or BE.
func benchPod(i, turn int) real.PodSpec {
	name := fmt.Sprintf("bench-%d", i)
	if turn%2 == 0 {
		return plain(name, "LS")
	}
	spec := plain(name, "BE")
	spec.QoS = real.BestEffort
	const each = `{"requests":{"kubernetes.io/batch-cpu":"500"},"limits":{"kubernetes.io/batch-cpu":"1000","kubernetes.io/batch-memory":"256Mi"}}`
	var all []string
	for i := range perPod {
		all = append(all, fmt.Sprintf(`"app-%d":%s`, i, each))
	}
	spec.Annotations = map[string]string{"node.koordinator.sh/extended-resource-spec": `{"containers":{` + strings.Join(all, ",") + `}}`}
	return spec
}

// report prints times in milliseconds, and ratios to the first arm.
func report(b *testing.B, arms []*arm) {
	b.Helper()
	at := func(all []time.Duration, p int) time.Duration {
		sorted := slices.Sorted(slices.Values(all))
		return sorted[min(p*len(sorted)/100, len(sorted)-1)]
	}
	ms := func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) }
	over := func(x, y time.Duration) float64 { return x.Seconds() / y.Seconds() }
	fmt.Printf("\n%s: CRI CreateContainer on containerd; times in ms, ratios to %q\n", b.Name(), arms[0].name)
	fmt.Printf("%12s %16s %6s %8s %8s %10s %10s %10s\n", "container", "arm", "calls", "p50", "p90", "p50 ratio", "p90 ratio", "start p50")
	for _, class := range []string{"shares", "owns a CPU"} {
		base := arms[0].create[class]
		if len(base) == 0 {
			continue
		}
		for _, a := range arms {
			all := a.create[class]
			fmt.Printf("%12s %16s %6d %8s %8s %10.2f %10.2f %10s\n", class, a.name, len(all), ms(at(all, 50)), ms(at(all, 90)),
				over(at(all, 50), at(base, 50)), over(at(all, 90), at(base, 90)), ms(at(a.live[class], 50)))
		}
	}
	fmt.Printf("%q against %q is the noise of this very run.\n", arms[1].name, arms[0].name)
	of := "shares"
	if len(arms[0].create[of]) == 0 {
		of = "owns a CPU"
	}
	base := at(arms[0].create[of], 50)
	b.ReportMetric(over(at(arms[1].create[of], 50), base), "p50-ratio-noise")
	b.ReportMetric(over(at(arms[2].create[of], 50), base), "p50-ratio")
}
