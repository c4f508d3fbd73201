package cpuclass

import (
	"encoding/json"
	"fmt"
	"maps"
)

// savedOriginals is the stored form of original values.
type savedOriginals struct {
	// Boot identifies the boot of the machine in which the agent read Files.
	Boot string `json:"boot"`
	// Files has the text of each file from before the first write, by the name of the file.
	Files map[string]string `json:"files"`
}

// loadOriginals reads the original values that an earlier run of the agent saved. It ignores values that were saved
// before the last boot of the machine.
func (w *Writer) loadOriginals(data []byte) error {
	if len(data) == 0 {
		return nil
	}
	var s savedOriginals
	if err := json.Unmarshal(data, &s); err != nil {
		return fmt.Errorf("read the original frequencies and idle states of CPUs: %w", err)
	}
	if s.Boot == w.options.Boot {
		maps.Copy(w.originals, s.Files)
	}
	return nil
}

// saveOriginals stores the originals if they changed after the last successful save.
func (w *Writer) saveOriginals() error {
	if !w.unsaved || w.options.Save == nil {
		return nil
	}
	data, err := json.Marshal(savedOriginals{Boot: w.options.Boot, Files: w.originals})
	if err == nil {
		err = w.options.Save(data)
	}
	w.unsaved = err != nil
	return err
}
