package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent/simulated"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/report/status"
	"github.com/trimtab/trimtab/internal/sim"
	"github.com/trimtab/trimtab/internal/sim/scenario"
)

// story is a scenario of a node with two NUMA nodes, each with an interface, and pods that request
// interfaces.
const story = `
name: qrmplugin
about: Interfaces of a resource plugin go to containers with CPUs of the same NUMA node; a third pod finds none.
node: {cpus: "1s x 2n x 4c, 8GiB/node", cgroup: v2, driver: cgroupfs}
config:
  pools: {reserved: "0"}
  placement: {policy: pools, reclaim: leftover, wholeCPUs: guaranteed}
  podspec: {waitMilliseconds: 1000}
  topologyManager: {policy: single-numa-node, refusal: fail}
  resourcePlugins: {timeoutMilliseconds: 5000, reconcileSeconds: 1, failurePolicy: fail}
steps:
  - name: before any plugin
    run:
      - pod: {namespace: default, name: before, qos: BestEffort, spec: &none {nodeName: node1, containers: [{name: a}]}}
        containers: [{name: a}]
    want: {default/before/a: {absentEnv: [NICS], problems: []}}
  - name: no interface, and most CPUs of the first NUMA node
    run:
      - pod: {namespace: default, name: big, qos: Guaranteed, spec: {nodeName: node1, containers: [{name: a, resources: {requests: {cpu: "3"}, limits: {cpu: "3"}}}]}}
        containers: [{name: a, resources: {shares: 3072, quota: 300000}}]
    want: {default/big/a: {absentEnv: [NICS], cpus: 1-3, exclusive: true, problems: []}}
  - name: it owns two CPUs, beside its interface
    run:
      - pod:
          namespace: default
          name: owner
          qos: Guaranteed
          spec:
            nodeName: node1
            containers:
              - name: a
                resources: {requests: {cpu: "2", memory: 64Mi, example.com/nic: "1"}, limits: {cpu: "2", memory: 64Mi, example.com/nic: "1"}}
        containers: [{name: a, resources: {shares: 2048, quota: 200000, memory: 67108864}}]
    want: {default/owner/a: &owner {env: {NICS: eth1}, mounts: {/run/nic: HOST}, devices: [/dev/null], cpus: 5-6, mems: "1", exclusive: true, problems: []}}
  - name: one that shares CPUs gets the other
    run:
      - pod:
          namespace: default
          name: shared
          qos: Burstable
          spec: &shared {nodeName: node1, containers: [{name: a, resources: {requests: {cpu: 100m, example.com/nic: "1"}, limits: {example.com/nic: "1"}}}]}
        containers: [{name: a, resources: {shares: 102}}]
    want: {default/shared/a: &one {env: {NICS: eth0}, mounts: {/run/nic: HOST}, problems: []}}
  - name: the agent restarts
    restart: agent
    want: {default/owner/a: *owner, default/shared/a: *one}
  - name: none is left
    run:
      - pod: {namespace: default, name: late, qos: Burstable, spec: *shared}
        containers: [{name: a, resources: {shares: 102}}]
    wantRejected: "no NUMA nodes meet the policy: example.com/nic fits on no single NUMA node"
  - name: one ends
    remove: [default/owner, default/late]
  - name: its interface is free
    run:
      - pod: {namespace: default, name: later, qos: Burstable, spec: *shared}
        containers: [{name: a, resources: {shares: 102}}]
    want: {default/later/a: {env: {NICS: eth1}, problems: []}}
`

// awaitPlugin waits until a plugin answers and has released all pods that ended.
func awaitPlugin(t *testing.T, s status.Source) {
	t.Helper()
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		r := s.Status().ResourcePlugins
		if r != nil && len(r.Plugins) == 1 && r.Plugins[0].PendingRemovals == 0 {
			return
		}
		select {
		case <-look.C:
		case <-t.Context().Done():
			t.Fatalf("the plugin is not registered, or has not released what it should: %+v", r)
		}
	}
}

// TestPlay runs a scenario with an agent and the plugin, which registers in both ways.
func TestPlay(t *testing.T) {
	for _, watched := range []bool{false, true} {
		t.Run(fmt.Sprintf("watched=%v", watched), func(t *testing.T) { play(t, watched) })
	}
}

func play(t *testing.T, watched bool) {
	t.Helper()
	dir, host := t.TempDir(), t.TempDir()
	s, err := scenario.Parse([]byte(replaced(story, host)))
	if err != nil {
		t.Fatal(err)
	}
	set := settings{
		dir: dir, socket: "nic.sock", resource: "example.com/nic", state: filepath.Join(t.TempDir(), "given.json"),
		nics: []nic{{"eth0", 0}, {"eth1", 1}}, mount: host + ":/run/nic", device: "/dev/null",
	}
	if watched {
		set.dir, set.watchedDirectory = "", dir
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx, set) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	err = sim.Run(t.Context(), s, sim.RunOptions{
		Agent: func(o sim.AgentOptions) (sim.Agent, error) {
			o.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
			return simulated.New(o)
		},
		Configure: func(c *config.Config) {
			if c.ResourcePlugins.Directory = dir; watched {
				c.ResourcePlugins.Directory, c.ResourcePlugins.Watch = "", []string{dir}
			}
		},
		AfterStep: func(_ int, _ *sim.Runtime, s status.Source) { awaitPlugin(t, s) },
	})
	if err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(set.state); err != nil {
		t.Error(err)
	}
}

// replaced replaces HOST in the scenario by a directory of the host.
func replaced(story, host string) string { return strings.ReplaceAll(story, "HOST", host) }
