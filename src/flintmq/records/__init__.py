"""Record batches: headers, records, compression, markers, checksums. Pure bytes, below everything."""
