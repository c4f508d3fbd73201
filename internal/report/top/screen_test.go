package top

import (
	"bytes"
	"context"
	"regexp"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/term"
)

// TestLiveThroughScreen: the live view draws only with sequences that kubectl trimtab passes; only its
// queries to the terminal are removed.
func TestLiveThroughScreen(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ask := func(context.Context) (api.Node, api.Usage, error) { return node(), api.Usage{}, nil }
	var drawn bytes.Buffer
	p := tea.NewProgram(New(ctx, ask, proc(before), time.Hour, true), tea.WithContext(ctx), tea.WithInput(nil), tea.WithOutput(&drawn),
		tea.WithWindowSize(100, 30), tea.WithEnvironment([]string{"TERM=xterm-256color"}), tea.WithoutSignals())
	first, second := readings(t)
	go func() { // p.Send returns when the program has taken the message
		p.Send(sample{node: node(), reading: first})
		p.Send(sample{node: node(), reading: second})
		p.Quit()
	}()
	if _, err := p.Run(); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if _, err := term.NewScreen(&out).Write(drawn.Bytes()); err != nil {
		t.Fatal(err)
	}
	questions := regexp.MustCompile(`\x1b\[(\?[0-9]+\$p|\?u|>[0-9;]*[a-z]|[=<>][0-9;]*u|c)`)
	if want := questions.ReplaceAllString(drawn.String(), ""); out.String() != want || !strings.Contains(want, "redis") {
		t.Errorf("of %q\nthe terminal gets %q", want, out.String())
	}
}
