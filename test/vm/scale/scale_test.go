package scale

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trimtab/trimtab/test/vm/cluster/objects"
)

var (
	nodesFlag = flag.Int("nodes", 100, "how many nodes have an agent")
	podsFlag  = flag.Float64("pods", 1, "how many pods each node gets and loses a minute while that is measured")
	restFlag  = flag.Duration("rest", 11*time.Minute, "how long the agents are measured at rest: what they do at rest they do every 5 to 11 minutes")
	busyFlag  = flag.Duration("busy", 2*time.Minute, "how long they are measured with pods, and the API server without agents")
)

// BenchmarkScale starts the agents of many nodes at once, and measures their requests to the API server: at
// their start, at rest, while pods are created and removed, at changes of the configuration, and after an
// outage of the API server.
func BenchmarkScale(b *testing.B) {
	c := gather(b, *nodesFlag)
	ctx, stop := context.WithCancel(b.Context())
	var running sync.WaitGroup
	b.Cleanup(func() { stop(); running.Wait() })
	b.Logf("%d nodes; load of this machine: %s", *nodesFlag, load())

	c.phase("no agents, at rest", *busyFlag, 0)
	c.phase("no agents, with pods", *busyFlag, *podsFlag)

	c.ours.again()
	for _, a := range c.agents {
		a.start()
		running.Go(func() { _ = a.run(ctx) })
	}
	began := time.Now()
	c.until("every agent has reported", func() bool {
		return c.ours.seen("apply noderesourcetopologies") >= *nodesFlag && c.ours.seen("patch nodes") >= *nodesFlag && c.ours.seen("watch pods") >= *nodesFlag
	})
	c.burst(fmt.Sprintf("start of all agents, reported after %.1f s", time.Since(began).Seconds()))

	c.configure()
	c.refuse()
	if quiet := c.phase("at rest", *restFlag, 0); float64(quiet.sum(true)) > float64(*nodesFlag)*restFlag.Minutes() {
		b.Errorf("at rest %d nodes write %d times in %s: more than once a minute", *nodesFlag, quiet.sum(true), *restFlag)
	}
	c.phase("with pods", *busyFlag, *podsFlag)
	b.Logf("events by reason: %v", c.reasons())
	c.away()
	b.ReportMetric(0, "ns/op")
}

func load() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.TrimSpace(string(text))
}

// phase measures for some time, and prints the requests per node and minute, and their cost.
func (c *crowd) phase(what string, d time.Duration, podsPerMinute float64) reading {
	c.b.Helper()
	ctx, cancel := context.WithTimeout(c.b.Context(), d)
	defer cancel()
	etcd, server := c.plane.Processes()
	c.ours.again()
	c.others.again()
	counts := answers(c.b, c.plane)
	before := []usage{used(c.b, etcd), used(c.b, server), used(c.b, os.Getpid())}
	begun := time.Now()
	c.live(ctx, podsPerMinute)
	minutes := time.Since(begun).Minutes()
	after := []usage{used(c.b, etcd), used(c.b, server), used(c.b, os.Getpid())}
	ours, others := c.ours.again(), c.others.again()
	sameCount(c.b, minus(answers(c.b, c.plane), counts), ours, others)

	per := float64(len(c.agents)) * minutes
	var list []string
	for _, kind := range slices.Sorted(maps.Keys(ours.requests)) {
		list = append(list, fmt.Sprintf("%s %.3f", kind, float64(ours.requests[kind])/per))
	}
	most, _ := ours.peak()
	c.b.Logf("%s, %.1f min. Per node and minute: %.2f requests, %.3f writes, %.0f bytes sent, %.0f received (%s). Most in a second: %d. Refused: %v",
		what, minutes, float64(ours.sum(false))/per, float64(ours.sum(true))/per, float64(ours.sent)/per, float64(ours.received)/per,
		strings.Join(list, ", "), most, ours.refused)
	for i, name := range []string{"etcd", "kube-apiserver", "the agents"} {
		share := float64(after[i].cpu-before[i].cpu) / float64(time.Minute) / minutes
		c.b.Logf("    %s: %.1f %% of a CPU, %d MiB resident", name, 100*share, after[i].resident)
	}
	return ours
}

// burst prints the distribution of requests since the meter was reset.
func (c *crowd) burst(what string) {
	c.b.Helper()
	_, server := c.plane.Processes()
	r := c.ours.again()
	most, spread := r.peak()
	c.b.Logf("%s: %d requests, %d in one second at most, 90 %% within %d s, refused %v; kube-apiserver has %d MiB\n    by kind: %v\n    by second: %v", what, r.sum(false), most, spread,
		r.refused, used(c.b, server).resident, r.requests, r.bySeconds)
}

func (c *crowd) until(what string, done func() bool) {
	c.b.Helper()
	c.plane.Wait(what, func(context.Context) error {
		if done() {
			return nil
		}
		return fmt.Errorf("requests so far: %s", c.ours)
	})
}

// put writes the cluster's ConfigMap, and returns its version.
func (c *crowd) put(text string) string {
	c.b.Helper()
	maps := objects.ClientFor(c.admin, "ConfigMap", objects.Namespace)
	o := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "trimtab-cluster", "labels": map[string]any{"trimtab.io/config": "cluster"}},
		"data": map[string]any{"config.yaml": "apiVersion: trimtab.io/v1alpha1\nkind: Config\n" + text},
	}}
	body, err := o.MarshalJSON()
	if err != nil {
		c.b.Fatal(err)
	}
	force := true
	made, err := maps.Patch(c.b.Context(), "trimtab-cluster", types.ApplyPatchType, body, metav1.PatchOptions{FieldManager: "admin", Force: &force})
	if err != nil {
		c.b.Fatal(err)
	}
	return made.GetResourceVersion()
}

// configure measures how long a change of the cluster's configuration takes to reach each agent.
func (c *crowd) configure() {
	c.b.Helper()
	const changes = 5
	var times [][]time.Duration
	for i := range changes {
		begun := time.Now()
		version := c.put(fmt.Sprintf("podspec: {waitMilliseconds: %d}\n", 50+i))
		c.until("every agent has the configuration", func() bool {
			return !slices.ContainsFunc(c.agents, func(a *agent) bool { t := a.taken.Load(); return t == nil || t.version != version })
		})
		var all []time.Duration
		for _, a := range c.agents {
			all = append(all, a.taken.Load().at.Sub(begun))
		}
		slices.Sort(all)
		times = append(times, []time.Duration{all[len(all)/2], all[len(all)*99/100], all[len(all)-1]})
	}
	c.b.Logf("a change of the configuration reaches the agents, of which 300 ms are waited on purpose (p50, p99, last): %v", times)
}

// refuse writes an invalid configuration, and measures the events and conditions that follow.
func (c *crowd) refuse() {
	c.b.Helper()
	c.ours.again()
	c.put("noSuchKey: 1\n")
	c.until("every agent has said that it is refused", func() bool {
		return c.ours.seen("post events") >= len(c.agents) && c.ours.seen("patch nodes") >= len(c.agents)
	})
	c.burst("a configuration that every agent refuses")
	c.put("podspec: {waitMilliseconds: 60}\n")
	c.until("every agent has said that it is good again", func() bool { return c.ours.seen("patch nodes") >= len(c.agents) })
	c.burst("a good one again")
}

// away measures how the agents reconnect after an outage of the API server.
func (c *crowd) away() {
	c.b.Helper()
	c.plane.StopServer()
	if err := wait(c.b.Context(), 20*time.Second); err != nil {
		c.b.Fatal(err)
	}
	c.plane.StartServer()
	c.ours.again()
	version := c.put("podspec: {waitMilliseconds: 70}\n")
	begun := time.Now()
	c.until("every agent is back", func() bool {
		return !slices.ContainsFunc(c.agents, func(a *agent) bool { return a.taken.Load().version != version || !a.specs.States()[0].Up })
	})
	c.burst(fmt.Sprintf("the API server was away for 20 s; all agents are back after %.1f s", time.Since(begun).Seconds()))
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
