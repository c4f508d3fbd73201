package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/lifecycle"
)

// TestAdoptAlone: without an agent the command says what it needs, and --apply still stores what it read for the next one.
func TestAdoptAlone(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(header+"paths: {state: "+dir+"/state, statusSocket: "+dir+"/none.sock}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	call := func(args ...string) (code int, out, errs string) {
		var o, e bytes.Buffer
		args = append([]string{"adopt", "--from", "kubelet", "--root", "../../examples/adopt/kubelet", "--config", file}, args...)
		code = run(t.Context(), invocation{name: "trimtab", args: args, in: strings.NewReader(""), out: &o, err: &e})
		return code, o.String(), e.String()
	}
	if code, _, errs := call(); code != exitUnreachable || !strings.Contains(errs, "only a running Trimtab agent with mode: observe") {
		t.Errorf("without an agent: exit code %d, %q", code, errs)
	}
	code, out, errs := call("--apply")
	if code != exitOK || !strings.Contains(out, "the next start of the agent with mode: enforce takes over from kubelet (3 containers in its files)") {
		t.Errorf("--apply: exit code %d, %q, %q", code, out, errs)
	}
	var from lifecycle.FormerAgent
	text, err := os.ReadFile(filepath.Join(dir, "state", "adopt.json"))
	if err == nil {
		err = json.Unmarshal(text, &from)
	}
	if err != nil || from.System != "kubelet" || len(from.Containers) != 3 {
		t.Errorf("the next start would read %v, %v", from, err)
	}
}
