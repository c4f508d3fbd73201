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

// idleFor is how long nothing happens: a round of what is looked at every minute.
const idleFor = time.Minute

// BenchmarkIdle measures the CPU time of the agent as it is delivered while nothing happens beside a real containerd with
// so many running containers, in percent of one CPU. A thousand are in test/bench/crowd: each here is two processes and a
// shim.
func BenchmarkIdle(b *testing.B) {
	for _, mode := range []string{"nri", "bypass", "cri"} {
		for _, at := range []int{0, 100} {
			b.Run(fmt.Sprintf("%s/%d", mode, at), func(b *testing.B) {
				c, a := attachedTo(b, mode)
				startTogether(b, c, makePods(b, c, 0, at))
				pid := a.cmd.Process.Pid
				for calm, last := 0, threadTime(b, pid); calm < 3; { // what the starts left to do is done
					time.Sleep(time.Second)
					now := threadTime(b, pid)
					if calm++; now-last > 20*time.Millisecond {
						calm = 0
					}
					last = now
				}
				for b.Loop() {
					before := threadTime(b, pid)
					time.Sleep(idleFor) // nothing happens: that is what is measured
					b.ReportMetric(100*float64(threadTime(b, pid)-before)/float64(idleFor), "%CPU")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// threadTime is the CPU time of all threads of a process.
func threadTime(b *testing.B, pid int) (sum time.Duration) {
	b.Helper()
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/schedstat", pid))
	if err != nil || len(threads) == 0 {
		b.Fatalf("process %d is not there (%v)", pid, err)
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
