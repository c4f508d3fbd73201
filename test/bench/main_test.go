package bench

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/containerd/nri/pkg/adaptation"
	nrilog "github.com/containerd/nri/pkg/log"
)

// patience keeps the runtime from giving up on a plugin that is slow: slowness
// is what is measured here. Runtimes default to 2 s for a request.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	flag.Var(&existing, "existing", "how many containers there are before, one number or several")
	quiet()
	if arm := os.Getenv(armVar); arm != "" {
		if err := plugin(arm); err != nil {
			fmt.Fprintln(os.Stderr, "plugin:", err)
			os.Exit(1)
		}
		return
	}
	if way := os.Getenv(wayVar); way != "" {
		if err := between(way); err != nil {
			fmt.Fprintln(os.Stderr, "way:", err)
			os.Exit(1)
		}
		return
	}
	adaptation.SetPluginRegistrationTimeout(patience)
	adaptation.SetPluginRequestTimeout(patience)
	code := m.Run()
	fmt.Print(table.String())
	os.Exit(code)
}

// quiet sends what the NRI libraries log nowhere, in all arms alike.
func quiet() { nrilog.Set(nriLog{slog.New(slog.DiscardHandler)}) }
