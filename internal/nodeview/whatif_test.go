package nodeview

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trimtab/trimtab/internal/report/api"
)

// TestChanges: changes are what differs of containers that are on both sides, also where only one side decides.
func TestChanges(t *testing.T) {
	of := func(container, setting, text string) api.Change {
		return api.Change{Pod: "shop/web", Container: container, Setting: setting, Before: text}
	}
	before := map[settingKey]api.Change{
		{"1", "class"}: of("app", "class", "shared"), {"1", "cpu.shares"}: of("app", "cpu.shares", "100"), {"1", "oom"}: of("app", "oom", "7"),
	}
	after := map[settingKey]api.Change{
		{"1", "class"}: of("app", "class", "shared"), {"1", "cpu.shares"}: of("app", "cpu.shares", "2"), {"1", "cpu.idle"}: of("app", "cpu.idle", "1"),
		{"p", "pod cpu.shares"}: of("", "pod cpu.shares", "2"), {"2", "class"}: of("planned", "class", "none"), {"2", "cpu.idle"}: of("planned", "cpu.idle", "1"),
		{"q", "pod cpu.shares"}: {Pod: "shop/planned", Setting: "pod cpu.shares", Before: "2"},
	}
	want := []api.Change{
		{Pod: "shop/web", Container: "app", Setting: "cpu.idle", After: "1"},
		{Pod: "shop/web", Container: "app", Setting: "cpu.shares", Before: "100", After: "2"},
		{Pod: "shop/web", Container: "app", Setting: "oom", Before: "7"},
		{Pod: "shop/web", Setting: "pod cpu.shares", After: "2"},
	}
	if diff := cmp.Diff(want, changes(before, after)); diff != "" {
		t.Error(diff)
	}
}
