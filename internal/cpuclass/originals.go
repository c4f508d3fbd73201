package cpuclass

import (
	"encoding/json"
	"fmt"
	"maps"
)

// savedOriginals is the stored form of original values.
type savedOriginals struct {
	// Boot identifies the boot in which Files were read.
	Boot string `json:"boot"`
	// Files are the texts that files had before the first write.
	Files map[string]string `json:"files"`
}

// loadOriginals reads stored originals. It ignores the originals of another boot.
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

// saveOriginals stores the originals if they changed since they were stored.
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
