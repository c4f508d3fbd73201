package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SkipUnbuilt skips a test in CI if a tool that only this test uses is not built yet, because the build takes minutes.
// A run outside of CI, make soak and a run with TRIMTAB_TURNS=all build the tool. The script is build.sh or kernel.sh
// of test/tools.
func SkipUnbuilt(tb testing.TB, script, tool string) {
	tb.Helper()
	if os.Getenv("CI") == "" || os.Getenv("TRIMTAB_SOAK") != "" || os.Getenv("TRIMTAB_TURNS") == "all" {
		return
	}
	if exec.CommandContext(tb.Context(), filepath.Join(packageDir(), "../tools", script), "--built", tool).Run() != nil {
		tb.Skipf("%s is not built, which takes minutes: make soak, and make e2e without CI, build it", tool)
	}
}
