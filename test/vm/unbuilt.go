package vm

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// SkipUnbuilt skips a test in CI if a tool is not built yet, because the build takes minutes. Use it for a tool that
// only this test uses. It skips nothing outside of CI, in make soak, and with TRIMTAB_TURNS=all. The test then builds
// the tool. The parameter script is build.sh or kernel.sh of test/tools.
func SkipUnbuilt(tb testing.TB, script, tool string) {
	tb.Helper()
	if os.Getenv("CI") == "" || os.Getenv("TRIMTAB_SOAK") != "" || os.Getenv("TRIMTAB_TURNS") == "all" {
		return
	}
	if exec.CommandContext(tb.Context(), filepath.Join(packageDir(), "../tools", script), "--built", tool).Run() != nil {
		tb.Skipf("%s is not built, and the build takes minutes: make soak builds it, and make e2e without the variable CI", tool)
	}
}
