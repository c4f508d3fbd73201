package real_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// idleFor is the idle time: one round of the agent's work of every minute.
const idleFor = time.Minute

// BenchmarkIdle measures the CPU time of the released agent on an idle node with a real containerd and running
// containers, in percent of one CPU. test/bench/crowd has a thousand containers; here each is two processes and a shim.
func BenchmarkIdle(b *testing.B) {
	for _, mode := range []string{"nri", "bypass", "cri"} {
		for _, at := range []int{0, 100} {
			b.Run(fmt.Sprintf("%s/%d", mode, at), func(b *testing.B) {
				c, a := attachedTo(b, mode)
				startTogether(b, c, makePods(b, c, 0, at))
				pid := a.cmd.Process.Pid
				for calm, last := 0, threadTime(b, pid); calm < 3; { // the agent finishes its work for the starts
					time.Sleep(time.Second)
					now := threadTime(b, pid)
					if calm++; now-last > 20*time.Millisecond {
						calm = 0
					}
					last = now
				}
				for b.Loop() {
					before := threadTime(b, pid)
					time.Sleep(idleFor) // idle: that is what is measured
					b.ReportMetric(100*float64(threadTime(b, pid)-before)/float64(idleFor), "%CPU")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// threadTime returns the CPU time of all threads of a process.
func threadTime(b *testing.B, pid int) (sum time.Duration) {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		b.Fatalf("process %d does not exist (%v)", pid, err)
	}
	for _, file := range threads {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // a thread that has ended
		}
		first, _, _ := strings.Cut(string(text), " ")
		ns, err := strconv.ParseInt(first, 10, 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(ns)
	}
	return sum
}
