package crowd

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trimtab/trimtab/internal/agent"
	"github.com/trimtab/trimtab/internal/cgroup"
	"github.com/trimtab/trimtab/internal/config"
	"github.com/trimtab/trimtab/internal/topology/describe"
)

// BenchmarkIdleProcess measures the CPU time of an agent with bypass on an idle node, in a process of its own, with
// status, watches and log. The runtime is another process. Cgroups are plain files that inotify watches.
func BenchmarkIdleProcess(b *testing.B) {
	for _, pods := range []int{0, 100, 1000} {
		b.Run(fmt.Sprint(pods), func(b *testing.B) {
			n := newNode(b, pods)
			pid := n.startProcess(b, n.mirror(b))
			n.rest()
			for b.Loop() {
				before := processTime(b, pid)
				time.Sleep(idleFor) // idle: that is what is measured
				b.ReportMetric(100*float64(processTime(b, pid)-before)/float64(idleFor), "%CPU")
			}
			b.ReportMetric(0, "ns/op")
		})
	}
}

// treeVar has the directory of plain files for a child; the arm agentArm makes the child an agent.
const (
	treeVar  = "TRIMTAB_CROWD_TREE"
	agentArm = "agent"
)

// attended runs such a child: it prints when it is attached, and ends with its standard input.
func attended(dir, tree string) error {
	root, err := cgroup.OpenRoot(tree)
	if err != nil {
		return err
	}
	m, err := describe.Parse(shape)
	if err != nil {
		return err
	}
	c := config.Default()
	c.Attach, c.CRI.Endpoint = "bypass", "unix://"+filepath.Join(dir, "c")
	c.Paths.StatusSocket, c.Paths.Key, c.Paths.State = filepath.Join(dir, "s"), filepath.Join(dir, "key"), filepath.Join(dir, "state")
	c.PodSpec = config.PodSpec{}
	a, err := agent.New(agent.Options{
		Config: c, Version: "bench", Machine: m, Tree: &cgroup.Tree{FS: plainFiles{root}, Version: cgroup.V2}, Log: slog.New(slog.DiscardHandler),
		Proc: filepath.Join(dir, "no-proc"), Watch: func() (cgroup.Watcher, error) { return cgroup.Watch(tree) },
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		_, _ = bufio.NewReader(os.Stdin).ReadByte()
	}()
	told := make(chan struct{})
	go func() {
		defer close(told)
		for !a.Connected() && ctx.Err() == nil {
			time.Sleep(20 * time.Millisecond)
		}
		fmt.Println("attached")
	}()
	defer func() { <-told }()
	defer cancel()
	return a.RunAlone(ctx)
}

// plainFiles is a cgroup tree of plain files. All texts are padded to one length, so that a write replaces the old text
// completely, as in a cgroup file.
type plainFiles struct{ *cgroup.Real }

func padded(text string) []byte {
	const length = 64
	return fmt.Appendf(nil, "%-*s\n", length-1, text)
}

// WriteFile writes a text that is padded to the common length.
func (p plainFiles) WriteFile(path string, data []byte) error {
	return p.Real.WriteFile(path, padded(strings.TrimSpace(string(data))))
}

// mirror copies the cgroup files of the runtime's kernel to plain files.
func (n *node) mirror(b *testing.B) (root string) {
	b.Helper()
	root = b.TempDir()
	names := []string{"cpuset.cpus.effective", "cpuset.mems.effective", "cgroup.procs", "cgroup.controllers"}
	for _, s := range cgroup.Settings() {
		if s.V2.Name != "" {
			names = append(names, s.V2.Name)
		}
	}
	var copied func(dir string)
	copied = func(dir string) {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			b.Fatal(err)
		}
		for _, name := range names {
			text, err := n.kernel.ReadFile(filepath.Join(dir, name))
			if err != nil {
				continue // not every cgroup has every file
			}
			if err := os.WriteFile(filepath.Join(root, dir, name), padded(strings.TrimSpace(string(text))), 0o644); err != nil {
				b.Fatal(err)
			}
		}
		below, err := n.kernel.List(dir)
		if err != nil {
			b.Fatal(err)
		}
		for _, name := range below {
			copied(filepath.Join(dir, name))
		}
	}
	copied(".")
	return root
}

// startProcess starts an agent in a process of its own and waits until it is attached.
func (n *node) startProcess(b *testing.B, tree string) (pid int) {
	b.Helper()
	cmd := exec.Command(os.Args[0]) // ends with its standard input
	cmd.Env = append(os.Environ(), armVar+"="+agentArm, dirVar+"="+n.dir, treeVar+"="+tree)
	cmd.Stderr = os.Stderr
	stop, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		_ = stop.Close()
		late := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		defer late.Stop()
		_ = cmd.Wait()
	})
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil || line != "attached\n" {
		b.Fatalf("the agent printed %q: %v", line, err)
	}
	return cmd.Process.Pid
}

// processTime returns the CPU time of all threads of a process.
func processTime(b *testing.B, pid int) (sum time.Duration) {
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
