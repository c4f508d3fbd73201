package hooks_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/parity"
	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/agent"
)

// unitsBy has the units of the package by attachment.
var unitsBy = map[string][]string{
	"nri": {"trimtab-nri.service"}, "bypass": {"trimtab-bypass.service"}, "cri": {"trimtab.socket", "trimtab.service"},
}

// TestUnits runs the agent by the systemd units of the Debian package, with their restrictions. The values of one pod
// of each kind are in force through each attachment, also after a kill.
func TestUnits(t *testing.T) {
	t.Parallel()
	for name, units := range unitsBy {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testTurns.Play(t)
			s, err := scenario.Load("../../scenarios/tour.yaml")
			if err != nil {
				t.Fatal(err)
			}
			shape, err := vm.ParseTopology(s.Node.CPUs)
			if err != nil {
				t.Fatal(err)
			}
			n := boot(t, vm.Guest{Systemd: true, Topology: shape})
			n.at = parity.ByName(name)
			if name == "bypass" {
				n.m.WithoutNRI()
			}
			n.a.Units = units
			n.m.Sh("cp " + agent.Program + " /usr/local/bin/trimtab")
			for _, unit := range units {
				text, err := os.ReadFile(filepath.Join("../../../deploy/systemd", unit))
				if err != nil {
					t.Fatal(err)
				}
				n.m.Put("/etc/systemd/system/"+unit, 0o644, text)
			}
			n.m.Run("systemctl", "daemon-reload")
			t.Cleanup(func() {
				if t.Failed() {
					t.Log(n.m.Sh("systemctl status --no-pager -l trimtab*; journalctl --no-pager -u 'trimtab*' | tail -n 60; true"))
				}
			})
			if err := errors.Join(n.equip(s), n.configure(s.Config), n.attach()); err != nil {
				t.Fatal(err)
			}
			n.supervised(units[len(units)-1])
			t.Logf("%d wants compared", play(t, n, s))
		})
	}
}

// supervised waits until systemd knows from the agent that it is ready, and checks its watchdog and a reload.
func (n *machine) supervised(unit string) {
	n.t.Helper()
	err := agent.Await(func() error {
		shown := n.m.Sh("systemctl show -p Type -p StatusText -p WatchdogTimestampMonotonic -p NRestarts " + unit)
		for _, want := range []string{"Type=notify\n", "StatusText=ready\n", "NRestarts=0\n"} {
			if !strings.Contains(shown+"\n", want) {
				return fmt.Errorf("%s: no %q in %s", unit, want, shown)
			}
		}
		if strings.Contains(shown, "WatchdogTimestampMonotonic=0") {
			return fmt.Errorf("%s: the watchdog has no sign of life: %s", unit, shown)
		}
		return nil
	})
	if err != nil {
		n.t.Error(err)
	}
	n.m.Run("systemctl", "reload", unit)
}
