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

// patience is the runtime's timeout for a plugin. It is longer than the default of 2 s, so that slow answers are
// measured.
const patience = 60 * time.Second

func TestMain(m *testing.M) {
	flag.Var(&existing, "existing", "number of existing containers, one or several numbers")
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

// quiet discards the logs of the NRI libraries, for all arms alike.
func quiet() { nrilog.Set(nriLog{slog.New(slog.DiscardHandler)}) }
