#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| hookwatch_fuzz::prometheus_answer(data));
