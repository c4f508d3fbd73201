package crowd

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/test/conformance"
)

// idleFor is the idle time: one round of the agent's periodic work, which runs every minute (bypass.resyncSeconds).
const idleFor = time.Minute

// BenchmarkIdle measures the CPU time of an agent with bypass on an idle node, in percent of one CPU. It is an upper
// bound, since the embedded runtime that answers the agent is in the same process.
func BenchmarkIdle(b *testing.B) {
	for _, pods := range []int{0, 100, 1000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			n := newNode(b, pods)
			stop := n.attend(b)
			defer stop()
			for b.Loop() {
				before := cpuTime(b)
				time.Sleep(idleFor) // idle: that is what is measured
				b.ReportMetric(100*float64(cpuTime(b)-before)/float64(idleFor), "%CPU")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// attend starts an agent for the runtime and waits until it has listed all containers.
func (n *node) attend(b *testing.B) (stop func()) {
	b.Helper()
	c := config.Default()
	c.Attach = "bypass"
	c.CRI.Endpoint = "unix://" + n.cri()
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(n.dir, "s"), filepath.Join(n.dir, "key"), filepath.Join(n.dir, "state")
	c.PodSpec = config.PodSpec{}
	a, err := agent.New(agent.Options{
		Config: c, Version: "bench", Machine: n.machine, Tree: &cgroup.Tree{FS: n.kernel, Version: cgroup.V2},
		Proc: filepath.Join(n.dir, "no-proc"), Watch: func() (cgroup.Watcher, error) { return conformance.Watch(n.kernel), nil },
	})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.Run(ctx) }()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !a.Connected() {
		select {
		case err := <-ended:
			b.Fatal(err)
		case <-tick.C:
		}
	}
	n.rest()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			b.Error(err)
		}
	}
}

// rest waits until the agent has written its values and the runtime's copies are updated.
func (n *node) rest() {
	for last := -1; last != n.updates(); {
		last = n.updates()
		pause := time.NewTimer(3 * time.Second)
		<-pause.C
	}
}

// updates returns the number of updates that the runtime received.
func (n *node) updates() int { return int(n.criServer.UpdateCalls()) }

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
