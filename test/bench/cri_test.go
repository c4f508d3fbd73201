package bench

import (
	"context"
	"flag"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

const (
	criPods   = 500
	criRounds = 5 // calls are interleaved, so that other load affects all ways alike
)

// criCall is a call that is measured on all ways.
type criCall struct {
	name, method string
	messages     [][]byte // one after another
	each         int      // calls per caller and round
	ours         []*way   // the last way is compared with the others
}

var (
	criCalls = flag.String("calls", "", "measure only the calls of BenchmarkCRI whose name matches this expression, for profiles")
	before   = flag.String("before", "", "test binary of an older build, whose agent becomes one more way")
)

// BenchmarkCRI measures the ways between a caller and one backend in memory. Each proxy is a process of its own.
func BenchmarkCRI(b *testing.B) {
	s := table.section(fmt.Sprintf("CRI calls, %d existing containers, ways in turn; ratios are to %q, whose second run is the noise", criPods, direct),
		"call", "callers", "way", "p50", "p50 ratio", "to the pass-through", "to the forwarder", "CPU of the proxy process, per call")
	memory := table.section("Memory of the CRI proxy, KiB", "containers", "when", "resident", "anonymous part", "file-backed", "peak")
	// A kubelet creates the containers of different pods in parallel.
	var silent, decided []*unit
	for i := range 64 {
		silent, decided = append(silent, newUnit(200_000+i, shared, 0)), append(decided, newUnit(300_000+i, batch, 0))
		clear(silent[i].pod.Labels)
		clear(silent[i].pod.Annotations)
	}
	t := newTree(b)
	for _, u := range slices.Concat(population(criPods), silent, decided) {
		if err := t.makePod(u); err != nil {
			b.Fatal(err)
		}
		if err := t.makeContainer(u); err != nil {
			b.Fatal(err)
		}
	}
	wanted, err := regexp.Compile(*criCalls)
	if err != nil {
		b.Fatal(err)
	}
	k := openBackend(b, criPods, slices.Concat(silent, decided)...)
	var others []*way
	for _, name := range []string{direct, directAgain, forwarded, passed} {
		others = append(others, openWay(b, name, k.path, t))
	}
	plain, asking := agentWays(b, k.path, t, proxied), agentWays(b, k.path, t, hooked)
	trim := plain[len(plain)-1]
	time.Sleep(time.Second) // the agent becomes idle
	m := memoryOf(b, trim.child.Process.Pid)
	memory.row(criPods, "after its start", m["VmRSS"], m["RssAnon"], m["RssFile"], m["VmHWM"])
	for _, c := range []criCall{
		{"Version", "Version", [][]byte{{}}, 400, plain},
		{"ListContainers of 500", "ListContainers", [][]byte{{}}, 60, plain},
		{"CreateContainer, nothing decided", "CreateContainer", creations(silent), 200, plain},
		{"CreateContainer, decided", "CreateContainer", creations(decided), 200, plain},
		{"CreateContainer, one hook server", "CreateContainer", creations(silent), 200, asking},
	} {
		if !wanted.MatchString(c.name) {
			continue
		}
		for _, callers := range []int{1, 8} {
			measure(b, s, slices.Concat(others, c.ours), c, callers)
		}
	}
	m = memoryOf(b, trim.child.Process.Pid)
	memory.row(criPods, "after all calls", m["VmRSS"], m["RssAnon"], m["RssFile"], m["VmHWM"])
}

// agentWays returns the ways through an agent: that of the older build, if one is given, and then ours.
func agentWays(b *testing.B, backend string, t tree, name string) []*way {
	b.Helper()
	if *before == "" {
		return []*way{openWay(b, name, backend, t)}
	}
	return []*way{openWay(b, name+earlier, backend, t), openWay(b, name, backend, t)}
}

// measure makes one kind of call on all ways, of which the last is ours, and adds their rows.
func measure(b *testing.B, s *section, ways []*way, c criCall, callers int) {
	b.Helper()
	for _, w := range ways {
		w.p50, w.cpu = nil, nil
	}
	for round := range criRounds {
		for i := range ways {
			w := ways[(round+i)%len(ways)]
			w.round(b, c, callers)
		}
	}
	base := map[string]time.Duration{}
	for _, w := range ways {
		base[w.name] = w.p50.at(50)
	}
	for _, w := range ways {
		p := base[w.name]
		s.row(c.name, callers, w.name, p, over(p, base[direct]), over(p, base[passed]), over(p, base[forwarded]), w.cpu.at(50))
	}
	name := fmt.Sprintf("%s-%d-to-pass-through", strings.NewReplacer(",", "", " ", "-").Replace(c.name), callers)
	b.ReportMetric(over(base[ways[len(ways)-1].name], base[passed]), name)
}

// round makes the calls of one round.
func (w *way) round(b *testing.B, c criCall, callers int) {
	b.Helper()
	for i := range 20 {
		w.call(b, c, i)
	}
	used := w.used(b)
	times := make([]sample, callers)
	var all sync.WaitGroup
	for i := range callers {
		all.Go(func() {
			for n := range c.each {
				times[i] = append(times[i], w.call(b, c, n*callers+i))
			}
		})
	}
	all.Wait()
	if w.child != nil {
		w.cpu = append(w.cpu, (w.used(b)-used)/time.Duration(c.each*callers))
	}
	var joined sample
	for _, t := range times {
		joined = append(joined, t...)
	}
	w.p50 = append(w.p50, joined.at(50))
}

func creations(all []*unit) [][]byte {
	var out [][]byte
	for _, u := range all {
		out = append(out, encode(creation(u)))
	}
	return out
}

// call measures one call, and removes what it created.
func (w *way) call(b *testing.B, c criCall, n int) time.Duration {
	b.Helper()
	const service = "/runtime.v1.RuntimeService/"
	var out []byte
	start := time.Now()
	err := w.conn.Invoke(context.Background(), service+c.method, &c.messages[n%len(c.messages)], &out)
	took := time.Since(start)
	if err != nil {
		b.Errorf("%s: %s: %v", w.name, c.method, err)
		return took
	}
	if c.method != "CreateContainer" {
		return took
	}
	var made cri.CreateContainerResponse
	if err := proto.Unmarshal(out, &made); err != nil {
		b.Error(err)
	}
	again, err := proto.Marshal(&cri.RemoveContainerRequest{ContainerId: made.ContainerId})
	if err == nil {
		err = w.conn.Invoke(context.Background(), service+"RemoveContainer", &again, &out)
	}
	if err != nil {
		b.Errorf("%s: remove: %v", w.name, err)
	}
	return took
}
