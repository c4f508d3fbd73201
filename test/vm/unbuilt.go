package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SkipUnbuilt skips a test in CI if a tool is not built yet, because the build takes minutes. Use it only for a tool
// that no other test needs. Outside of CI, in make soak, and with TRIMTAB_TURNS=all, it does not skip the test, and the
// test then builds the tool. The parameter script is the script of test/tools that builds the tool: build.sh or
// kernel.sh.
func SkipUnbuilt(tb testing.TB, script, tool string) {
	tb.Helper()
	if os.Getenv("CI") == "" || os.Getenv("TRIMTAB_SOAK") != "" || os.Getenv("TRIMTAB_TURNS") == "all" {
		return
	}
	if exec.CommandContext(tb.Context(), filepath.Join(packageDir(), "../tools", script), "--built", tool).Run() != nil {
		tb.Skipf("%s is not built, and the build takes minutes: make soak builds it, and make e2e without the variable CI", tool)
	}
}
