package top

import (
	"context"
	"io/fs"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/trimtab/trimtab/internal/report/api"
	"github.com/trimtab/trimtab/internal/report/usage"
)

// maxSamples is how many samples the history of a row keeps.
const maxSamples = 30

// Ask asks the agent for the node's state, and for the CPU time that each container has used since its start.
type Ask func(context.Context) (api.Node, api.Usage, error)

// Model is the state of the live view. It implements bubbletea's Model.
type Model struct {
	ctx      context.Context
	ask      Ask
	proc     fs.FS          // the directory /proc
	interval time.Duration  // from one sample to the next
	last     *usage.Reading // the reading of /proc in the last sample; nil before the first sample
	used     *api.Usage     // the CPU time that containers had used at the last sample; nil before the first sample
	frame    Frame
}

// New makes a live view that takes a sample once in each interval.
func New(ctx context.Context, ask Ask, proc fs.FS, interval time.Duration, color bool) Model {
	return Model{ctx: ctx, ask: ask, proc: proc, interval: interval, frame: Frame{Color: color, History: map[string][]float64{}}}
}

// sample is the state of the node at one moment, or the error of the attempt to read it.
type sample struct {
	node    api.Node      // the agent's answer about the node
	used    api.Usage     // the CPU time that containers have used since their start
	reading usage.Reading // what was read in /proc
	err     error
}

// sampleTick is the message that makes Update take the next sample.
type sampleTick struct{}

// Init takes the first sample.
func (m Model) Init() tea.Cmd { return m.takeSample }

// takeSample queries the agent, reads /proc, and returns a sample.
func (m Model) takeSample() tea.Msg {
	ctx, cancel := context.WithTimeout(m.ctx, 5*time.Second)
	defer cancel()
	node, used, err := m.ask(ctx)
	reading, unread := usage.Read(m.proc)
	if err == nil {
		err = unread
	}
	return sample{node, used, reading, err}
}

// Update handles a key, a size or a sample.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.KeyPressMsg:
		return m.handleKey(msg.String())
	case tea.WindowSizeMsg:
		m.frame.Width, m.frame.Height = msg.Width, msg.Height
	case sampleTick:
		return m, m.takeSample
	case sample:
		if !m.frame.Paused {
			m = m.WithSample(msg.node, msg.used, msg.reading, msg.err)
		}
		return m, tea.Tick(m.interval, func(time.Time) tea.Msg { return sampleTick{} })
	}
	return m, nil
}

// handleKey handles a pressed key: quit, pause, or sort.
func (m Model) handleKey(name string) (tea.Model, tea.Cmd) {
	switch name {
	case "q", "esc", "ctrl+c":
		return m, tea.Quit
	case "space":
		m.frame.Paused = !m.frame.Paused
	case "s":
		m.frame.ByName = !m.frame.ByName
	}
	return m, nil
}

// WithSample returns the view with a new sample. If the sample failed, the view keeps the last state and adds the
// error.
func (m Model) WithSample(node api.Node, used api.Usage, r usage.Reading, err error) Model {
	if err != nil {
		m.frame.SampleError = err.Error()
		return m
	}
	m.frame.SampleError, m.frame.Node, m.frame.Pressure = "", node, r.Pressure
	if node.Simulated { // /proc describes this machine, not the simulated node, so the view shows no load
		m.frame.Busy, m.frame.Pressure, m.frame.Used, m.frame.History, m.last, m.used = nil, nil, nil, nil, nil, nil
		return m
	}
	if m.last != nil {
		m.frame.Busy, m.frame.Used = r.BusySince(*m.last), usedBetween(*m.used, used)
		m.frame.History = addShares(m.frame.History, Rows(node, m.frame.Used))
	}
	m.last, m.used = &r, &used
	return m
}

// addShares returns the histories of the rows, and adds the share of each row to its history. It drops the histories of
// rows that no longer exist.
func addShares(before map[string][]float64, rows []Row) map[string][]float64 {
	after := map[string][]float64{}
	for _, r := range rows {
		share, ok := r.share()
		history := before[r.Name]
		if ok {
			history = append(append([]float64{}, history...), share)
		}
		after[r.Name] = history[max(0, len(history)-maxSamples):]
	}
	return after
}

// Frame returns what the screen shows now.
func (m Model) Frame() Frame { return m.frame }

// View draws the frame on the terminal's alternate screen.
func (m Model) View() tea.View {
	v := tea.NewView(m.frame.String())
	v.AltScreen = true
	return v
}
