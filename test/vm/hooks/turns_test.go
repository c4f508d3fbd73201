package hooks_test

import (
	"errors"
	"hash/fnv"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trimtab/trimtab/internal/sim/scenario"
	"github.com/trimtab/trimtab/test/vm"
	"github.com/trimtab/trimtab/test/vm/rotation"
)

// theTurns are the scenarios that this run plays, and testTurns the tests of one guest. The rotation of the tests is
// separate, because they are few: among the scenarios CI would seldom play one.
var (
	theTurns  = rotation.NewTurns("turns.txt", byTurns)
	testTurns = rotation.NewTurns("tests.txt", testsByTurns)
)

// byTurns returns the names of all parts of the rotation: each scenario that a guest can play, and TestPools, on each
// guest with one attachment. With every attachment on every guest a run would take a third of an hour.
func byTurns() ([]string, error) {
	files, err := filepath.Glob(scenarioFiles)
	var all []string
	for _, file := range files {
		s, err := scenario.Load(file)
		if err != nil {
			return nil, err
		}
		if unplayable(s) == "" {
			all = append(all, scenarioName(file))
		}
	}
	all = append(all, poolsName)
	var named []string
	for _, name := range all {
		for i, g := range guests() {
			named = append(named, turnName(attachmentOn(name, i), name, g.name))
		}
	}
	return named, err
}

// testsByTurns returns the names of the tests of one guest, except those that every run plays.
func testsByTurns() ([]string, error) {
	all := []string{"TestDaemonReload"}
	for name, at := range needing {
		if at.guest.Kernel != coreKernel { // which CI does not build
			all = append(all, "TestNeeds/"+name)
		}
	}
	for name := range unitsBy {
		all = append(all, "TestUnits/"+name)
	}
	for _, g := range versions() {
		if g.name != alwaysLifecycle {
			all = append(all, "TestLifecycle/"+g.name)
		}
	}
	for _, shape := range firstShapes {
		all = append(all, "TestFirstInstruction/"+shape.Name)
	}
	return all, nil
}

// alwaysLifecycle is the guest on which every run plays TestLifecycle.
const alwaysLifecycle = "v2"

// attachments are the attachments of suite A.
var attachments = []string{"nri", "cri", "bypass"}

// attachmentOn returns the attachment that plays a part on the guest with this index. Each guest has another attachment
// than the one before, so that four guests use all three. It depends only on the name, so a new scenario changes no
// other part.
func attachmentOn(name string, guest int) string {
	sum := fnv.New32a()
	sum.Write([]byte(name))
	return attachments[(int(sum.Sum32()%uint32(len(attachments)))+guest)%len(attachments)]
}

func turnName(attachment, name, guest string) string {
	return strings.Join([]string{attachment, name, guest}, "/")
}

func TestMain(m *testing.M) {
	vm.Main(m, func() error { return errors.Join(theTurns.Keep(), testTurns.Keep()) })
}
