package scenario

import (
	"fmt"
	"strings"
)

// The records of "write" and "read", which the programs of all languages know.
const (
	SampleCount = 100
	SampleTime  = int64(1_700_000_000_000)
)

// Header of a record.
type Header struct {
	Key   string
	Value string
}

// Record of the sample: what it is, whatever the client's own type.
type Record struct {
	Key     []byte
	Value   []byte
	TimeMs  int64
	Headers []Header
}

// Sample gives the record at an offset.
func Sample(i int) Record {
	record := Record{
		TimeMs:  SampleTime + int64(10*i),
		Headers: []Header{{"n", fmt.Sprint(i)}, {"h", "1"}, {"h", "2"}, {"empty", ""}},
	}
	if i%5 != 0 {
		record.Key = fmt.Appendf(nil, "key-%d", i)
	}
	if i%7 != 3 {
		record.Value = []byte(strings.Repeat(fmt.Sprintf("value-%d ", i), i%10+1))
	}
	return record
}
