package real_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trimtab/trimtab/test/real"
)

// TestRecordedChurn records, from its middle on, a churn with pods of all classes and owners. The replay
// makes the same decisions, byte for byte, and with another configuration it lists the differences.
func TestRecordedChurn(t *testing.T) {
	t.Parallel()
	needTwoCPUs(t)
	c := real.Start(t)
	needV1(t, c)
	a := startTrimtab(t, c, "")
	stays := c.RunContainer(c.RunPod(plain("stays", "LS")), real.ContainerSpec{Name: "app"})
	file := filepath.Join(t.TempDir(), "node.jsonl")
	var said lockedBuffer
	record := exec.CommandContext(t.Context(), a.path, "events", "--full", "--record", file, "--socket", a.socket())
	record.Stdout, record.Stderr = &said, &said
	if err := record.Start(); err != nil {
		t.Fatal(err)
	}
	lines := func() int {
		text, _ := os.ReadFile(file)
		return bytes.Count(text, []byte("\n"))
	}
	real.Eventually(t, time.Minute, func() error {
		if lines() == 0 {
			return errors.New("the recording has not begun")
		}
		return nil
	})
	var who owners
	for i := range rounds(t, 2) {
		if _, err := ownerCycle(c, a, fmt.Sprintf("db-%d", i), fmt.Sprint(i%2), &who); err != nil {
			t.Error(err)
		}
		for _, class := range []string{"", "LS", "BE"} {
			if err := waitingCycle(c, plain(fmt.Sprintf("churn-%d-%s", i, strings.ToLower(class)), class)); err != nil {
				t.Error(err)
			}
		}
		if err := c.TryUpdateResources(stays, pinned([]string{"0-1", "0"}[i%2])); err != nil {
			t.Error(err)
		}
	}
	last, since := 0, time.Now()
	real.Eventually(t, time.Minute, func() error {
		if now := lines(); now != last {
			last, since = now, time.Now()
		}
		if time.Since(since) < time.Second {
			return errors.New("lines of the recording still come")
		}
		return nil
	})
	_ = record.Process.Signal(syscall.SIGINT)
	if err := record.Wait(); err != nil || strings.Contains(said.String(), "were lost") || !strings.Contains(said.String(), "kind: CreateContainer") {
		t.Errorf("record: %v\n%s", err, said.String())
	}
	out, err := exec.CommandContext(t.Context(), a.path, "replay", file).CombinedOutput()
	if err != nil || !bytes.Contains(out, []byte(", 0 with a different decision than recorded")) || last < 30 {
		t.Errorf("replay of %d lines: %v\n%s", last, err, out)
	}
	t.Logf("%s", out)
	other := filepath.Join(t.TempDir(), "other.yaml")
	if err := os.WriteFile(other, []byte("apiVersion: trimtab.io/v1alpha1\nkind: Config\nhooks: {cpuset: {enabled: false}}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err = exec.CommandContext(t.Context(), a.path, "replay", file, "--config", other).CombinedOutput()
	if err == nil || !bytes.Contains(out, []byte("shop/db-0/db")) {
		t.Errorf("replay under another configuration: %v\n%s", err, out)
	}
}
