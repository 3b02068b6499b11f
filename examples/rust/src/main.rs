//! Runs a model with one input of float32 from several threads, and shows what an error says: host model.so

fn sum(model: &weft::Model, shape: &[i64]) -> Result<f64, weft::Error> {
    let values: Vec<f32> = (0..shape.iter().product::<i64>()).map(|i| (i % 7 - 3) as f32).collect();
    let outputs = model.run("main", &[weft::Tensor::new(&values, shape)])?;
    Ok(outputs[0].data::<f32>()?.iter().map(|v| f64::from(*v)).sum())
}

fn main() -> Result<(), weft::Error> {
    let path = std::env::args().nth(1).expect("host model.so");
    let model = weft::Model::open(path)?;
    let text = |t: &weft::TensorInfo| {
        let shape = t.shape.clone().unwrap_or_default().join(", ");
        format!("{}: {} [{shape}]", t.name, t.dtype.clone().unwrap_or_default())
    };
    let inputs = model.inputs()?;
    inputs.iter().for_each(|t| println!("input {}", text(t)));
    model.outputs()?.iter().for_each(|t| println!("output {}", text(t)));
    let dims = inputs[0].shape.clone().unwrap_or_default();
    let shape: Vec<i64> = dims.iter().map(|d| d.parse().unwrap_or(3)).collect();
    std::thread::scope(|s| {
        let threads: Vec<_> = (0..3).map(|_| s.spawn(|| (0..100).map(|_| sum(&model, &shape)).last().unwrap())).collect();
        threads.into_iter().for_each(|t| println!("sum {:.4}", t.join().unwrap().unwrap()));
    });
    if let Err(e) = sum(&model, &[3, 8, 1]) {
        println!("{e}");
    }
    Ok(())
}
